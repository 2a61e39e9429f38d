"""Pieces of words as tokens: neighbours are merged as long as a pair of them is known."""

from model import WORDS

PAIRS = {left + right for left in "aeiou" for right in "bcdfghlmnprst"} | {
    "th",
    "er",
    "in",
    "st",
    "ou",
}


def encode(prompt):
    return [piece for word in prompt.split() for piece in encode_word(word)] or [0]


def encode_word(word):
    pieces, at = [], 0
    while at < len(word):
        size = 2 if word[at : at + 2] in PAIRS else 1
        pieces.append(hash_of(word[at : at + size]))
        at += size
    return pieces


def hash_of(piece):
    value = 0
    for letter in piece:
        value = value * 31 + ord(letter)
    return value % WORDS


def decode(token):
    return f" {token:x}"
