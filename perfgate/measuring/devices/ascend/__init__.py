"""What is known of an Ascend machine without importing torch: its cards, its software, its settings."""
