"""What is known of a machine with NVIDIA GPUs without importing torch."""
