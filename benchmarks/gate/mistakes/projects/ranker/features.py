"""Text features of a query and its documents."""

import hashlib

STOPWORDS = frozenset(f"word{number}" for number in range(0, 4000, 7))
BUCKETS = 4096
_BUCKET_OF = {}


def tokens(text):
    return [word for word in text.split() if word not in STOPWORDS]


def bucket(word):
    found = _BUCKET_OF.get(word)
    if found is None:
        found = _BUCKET_OF[word] = (
            int.from_bytes(
                hashlib.blake2b(word.encode(), digest_size=4).digest(), "big"
            )
            % BUCKETS
        )
    return found


def rows(texts, length):
    return [
        ([bucket(word) for word in tokens(text)] + [0] * length)[:length]
        for text in texts
    ]
