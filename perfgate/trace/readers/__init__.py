"""From files of profilers to a recording: the formats, and what is left of a damaged file."""
