"""Words to tokens and back."""

WORDS = 997


def encode(prompt):
    return [sum(map(ord, word)) % WORDS for word in prompt.split()] or [0]


def decode(tokens, given):
    """The text of the tokens that are not given yet."""
    return "".join(f" w{token}" for token in tokens[given:])
