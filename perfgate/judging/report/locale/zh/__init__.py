"""The Chinese catalogue: in every module ``WORDS``, from the English sentence to the Chinese one, ``{name}`` in both."""
