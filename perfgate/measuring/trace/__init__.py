"""What one call did, event by event: read traces, analyse them, count exactly."""
