"""Real text that every Python has at hand: the sentences people wrote into the docstrings of the standard library."""

from __future__ import annotations

import importlib
import inspect
import re
from functools import lru_cache

MODULES = """
argparse asyncio calendar collections configparser csv datetime decimal difflib doctest email fractions functools
heapq http.client imaplib inspect ipaddress json logging mailbox optparse pathlib pdb pickle random sched shutil
smtplib statistics string subprocess tarfile tempfile textwrap threading traceback unittest zipfile
"""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_PROSE = re.compile(r"[A-Z][A-Za-z ,;'-]+\.")


def sentences(fewest: int, most: int) -> list[str]:
    """Return all sentences of ``fewest`` to ``most`` words, sorted, each once."""
    return [text for text in _all_sentences() if fewest <= len(text.split()) <= most]


@lru_cache(maxsize=1)
def _all_sentences() -> list[str]:
    found = {sentence for text in _docstrings() for paragraph in text.split("\n\n") for sentence in _split(paragraph)}
    return sorted(found)


def _split(paragraph: str) -> list[str]:
    parts = _SENTENCE_END.split(" ".join(paragraph.split()))
    return [part for part in parts if _PROSE.fullmatch(part)]


def _docstrings() -> list[str]:
    modules = [importlib.import_module(name) for name in MODULES.split()]
    members = [value for module in modules for value in vars(module).values()]
    owners = [*modules, *(value for value in members if inspect.isclass(value) or inspect.isfunction(value))]
    return [text for text in map(inspect.getdoc, owners) if text]
