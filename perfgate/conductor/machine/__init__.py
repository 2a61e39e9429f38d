"""The machine that is measured on: its lock, its fitness, its CPUs and its watcher."""
