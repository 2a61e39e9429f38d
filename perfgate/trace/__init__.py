"""Recordings of any profiler, read and analysed: numpy only, no torch."""
