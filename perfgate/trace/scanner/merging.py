"""The compiled loops over calls and those above them, if they were built."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from perfgate.trace.scanner.library import load, view

_VERSION = 1
# What is still to be found out of a call.
UNKNOWN = -2

Numbers = npt.NDArray[np.int32]
Flags = npt.NDArray[np.uint8]


class _Tree(ctypes.Structure):
    """The beginning of ``call_tree`` in merging.c: the fields read by the caller."""

    _fields_ = [
        ("count", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("parent", "label", "depth", "began", "kind")),
    ]


class TreeNodes(NamedTuple):
    """The nodes of a tree in any order, the roots first: parents, labels, kinds, levels (0 for a root), and first starts."""

    parent: Numbers
    label: Numbers
    kind: Flags
    depth: Numbers
    began: npt.NDArray[np.int64]


class CallTree:
    """A tree that grows with every ``merge``; its roots have tracks for labels."""

    def __init__(self, tracks: Numbers, kinds: Flags) -> None:
        library = _library()
        assert library is not None, "nobody merges without the library"
        self._library = library
        self._tree = library.tree_new(tracks.ctypes.data, kinds.ctypes.data, tracks.size)
        if not self._tree:
            raise MemoryError("no memory for a tree")

    def __del__(self) -> None:
        if getattr(self, "_tree", None):
            self._library.tree_free(self._tree)

    def merge(
        self,
        wanted: Numbers,
        *,
        above: Numbers,
        root: Numbers,
        label: Numbers,
        kind: Flags,
        start: npt.NDArray[np.int64],
        most_levels: int,
        node: Numbers,
        own: Flags,
    ) -> None:
        """Write into ``node`` the node of each wanted call and of all calls above it.

        ``above`` is the call above each, -1 for one below its ``root``; ``own`` becomes 0 for calls below the deepest level.
        """
        columns = (wanted, above, root, label, kind, start, node, own)
        assert all(column.flags.c_contiguous for column in columns), "the library reads one value behind the other"
        pointers = [column.ctypes.data for column in columns]
        done = self._library.tree_merge(
            self._tree, pointers[0], wanted.size, *pointers[1:6], above.size, most_levels, *pointers[6:]
        )
        if not done:
            raise MemoryError("no memory for a tree")

    def nodes(self) -> TreeNodes:
        tree = self._tree.contents
        types: dict[str, Any] = {"parent": np.int32, "label": np.int32, "kind": np.uint8, "depth": np.int32}
        types["began"] = np.int64
        return TreeNodes(**{name: view(getattr(tree, name), tree.count, kind).copy() for name, kind in types.items()})


def can_merge() -> bool:
    """Whether the loops were built, of this version."""
    return _library() is not None


def nearest_known(above: Numbers, found: Numbers) -> bool:
    """Replace each UNKNOWN in ``found`` by what the nearest call above has, NOTHING_AROUND if none has anything.

    Returns False without the library, which leaves ``found`` as it is.
    """
    library = _library()
    if library is None:
        return False
    assert above.flags.c_contiguous, "the library reads one value behind the other"
    library.nearest_known(above.ctypes.data, above.size, found.ctypes.data)
    return True


@cache
def _library() -> ctypes.CDLL | None:
    library = load()
    if library is None or not hasattr(library, "tree_version") or library.tree_version() != _VERSION:
        return None
    library.tree_new.restype = ctypes.POINTER(_Tree)
    library.tree_new.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32]
    library.tree_free.argtypes = [ctypes.POINTER(_Tree)]
    library.tree_free.restype = None
    pointer = ctypes.c_void_p
    library.tree_merge.argtypes = [
        *(ctypes.POINTER(_Tree), pointer, ctypes.c_int64, pointer, pointer, pointer, pointer, pointer),
        *(ctypes.c_int64, ctypes.c_int32, pointer, pointer),
    ]
    library.tree_merge.restype = ctypes.c_int32
    library.nearest_known.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]
    library.nearest_known.restype = None
    return library
