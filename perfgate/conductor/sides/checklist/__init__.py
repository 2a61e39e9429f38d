"""The checklist of a workload: steps in one process, and in turns on both sides."""
