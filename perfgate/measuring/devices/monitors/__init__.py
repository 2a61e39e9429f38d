"""What tells the state of a device without its framework, one module a kind, named like the kind and saying so in ``KIND``.

``examine(host, index)`` says what is wrong with the device; it must answer where torch cannot be imported. ``open_sensor(host,
index)`` returns what reads its heat, clock and power once a second beside a measurement, and ``open_watch(host, index,
identity)`` the single questions of its state and of the processes on it; both raise MeasuringError where nothing answers.
"""
