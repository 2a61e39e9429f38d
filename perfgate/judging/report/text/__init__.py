"""What every medium's text is made of: our words, numbers, sentences of documents, escaping, templates, drawings."""
