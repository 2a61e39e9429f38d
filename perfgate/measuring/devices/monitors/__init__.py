"""Monitors of a device's state without its framework, one module a kind, named like the
kind and with the same ``KIND``.

``examine(host, index)`` checks the device for faults, even if torch cannot be imported.
``open_sensor(host, index)`` returns a reader of its heat, clock and power for once a
second during a measurement, and ``open_watch(host, index, identity)`` the single
queries of its state and processes; both raise MeasuringError without an answer.
``clock_commands(host, index, megahertz)`` are those that lock and unlock its clock; it
raises MeasuringError if none can.
"""
