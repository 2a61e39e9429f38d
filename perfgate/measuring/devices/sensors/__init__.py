"""One module a kind of device: ``open_sensor(host, index)`` returns what reads its heat, clock and power, without torch.

A sensor is read once a second beside a measurement, by a process of its own, so it asks only for what may change then. A kind
without a module here has no sensor.
"""
