"""Kernels that perfgate.toml expects a call to run, held against the names of those that ran."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from typing import NamedTuple

_NEAREST = 3
# Of difflib's similarities, from 0 to 1; below this names have little more than letters in common.
_SIMILAR = 0.4
# What a pattern and a name may differ in and still mean one kernel: FlashAttention* and flash_attention_score.
_WORD = re.compile(r"[^a-z0-9]")


class MissingKernel(NamedTuple):
    """A pattern that no name fits, and the names that come nearest to it in one text."""

    pattern: str
    nearest: str


def missing_kernels(patterns: Iterable[str], names: Collection[str]) -> list[MissingKernel]:
    """Return the patterns that no name fits."""
    return [
        MissingKernel(pattern, ", ".join(_nearest(pattern, names)) or "none")
        for pattern in patterns
        if not any(fnmatchcase(name, pattern) for name in names)
    ]


def _nearest(pattern: str, names: Collection[str]) -> list[str]:
    wanted = _plain(pattern)
    containing = sorted(name for name in names if wanted and wanted in _plain(name))
    plain = {_plain(name): name for name in sorted(names, reverse=True)}
    similar = difflib.get_close_matches(wanted, list(plain), n=_NEAREST, cutoff=_SIMILAR)
    return list(dict.fromkeys([*containing, *(plain[word] for word in similar)]))[:_NEAREST]


def _plain(name: str) -> str:
    return _WORD.sub("", name.rpartition("::")[2].lower())
