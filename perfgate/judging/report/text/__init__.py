"""The building blocks of text in every medium: our words, numbers, sentences of
documents, escaping, templates, drawings.
"""
