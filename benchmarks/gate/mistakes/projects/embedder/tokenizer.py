"""Split texts into words and number them."""

import re
from functools import lru_cache
from zlib import crc32

import torch

WORD = re.compile(r"\w+|[^\w\s]")
VOCABULARY = 8192


@lru_cache(maxsize=65536)
def word_id(word):
    return crc32(word.casefold().encode()) % (VOCABULARY - 1) + 1


class Tokenizer:
    def __init__(self, longest=48):
        self.longest = longest

    def ids(self, text):
        return [word_id(word) for word in WORD.findall(text)][: self.longest]

    def batch(self, texts):
        rows = [self.ids(text) for text in texts]
        width = max(len(row) for row in rows)
        ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
        return ids, ids != 0
