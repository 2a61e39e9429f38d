"""One reader per trace format; each gives an EventTable."""
