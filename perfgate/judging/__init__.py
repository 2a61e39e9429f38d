"""What works on documents, anywhere, without torch."""
