"""An Ascend machine without importing torch: its cards, software and settings."""
