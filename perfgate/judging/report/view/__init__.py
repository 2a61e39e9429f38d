"""The reader's view as records, made once from the documents."""
