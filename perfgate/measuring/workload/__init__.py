"""The workload interface for users, and the code that finds, loads and calls workloads."""
