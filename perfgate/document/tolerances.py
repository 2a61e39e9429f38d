"""The margins for "unchanged" that the gate starts with, and what tolerances ask for."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from typing import NamedTuple

from perfgate.catalogue.names import SUBROUTINE_TIMES

# The slowdown that must be excluded before a time is called unchanged: the smaller one while there is time, where layouts move,
# and the larger one in the end.
SOUGHT_OK_MARGIN, OK_MARGIN = 0.01, 0.02


def judges_subroutines(tolerances: Iterable[str], kinds: tuple[str, ...] = SUBROUTINE_TIMES) -> bool:
    """Whether the times of single operators, modules or functions are to be judged, or of these kinds of them.

    They are judged only where a tolerance names them.
    """
    return any(key.startswith(kinds) for key in tolerances)


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
