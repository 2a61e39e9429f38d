"""What a reader sees, as records made once from the documents."""
