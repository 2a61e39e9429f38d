"""The formats of benchmark programs, one module each."""
