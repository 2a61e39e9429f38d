"""python-isal, which packs and unpacks deflate in a fraction of zlib's time, if it is
installed.
"""

from __future__ import annotations

import importlib
from typing import Any


def isal_module(name: str) -> Any:
    """``igzip`` or ``isal_zlib``, with the functions of gzip and zlib; None if the
    package is not installed.
    """
    try:
        return importlib.import_module(f"isal.{name}")
    except ImportError:
        return None
