"""Trees of calls, merged by stack: by the compiled loop if it was built, else call by call."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from perfgate.trace.scanner.library import load, view

_VERSION = 1
# Of a call: not determined yet.
UNKNOWN = -2

Numbers = npt.NDArray[np.int32]
Flags = npt.NDArray[np.uint8]
Times = npt.NDArray[np.int64]
_NEVER = int(np.iinfo(np.int64).max)
# The columns of TreeNodes.
_NODE_TYPES: dict[str, Any] = {
    "parent": np.int32,
    "label": np.int32,
    "kind": np.uint8,
    "depth": np.int32,
    "began": np.int64,
}


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
    began: Times


class Calls(NamedTuple):
    """The label, the kind and the start of each call; calls with one label and kind below one node become one node."""

    label: Numbers
    kind: Flags
    start: Times


class CallTree(Protocol):
    """A tree that grows with every ``merge``; its roots have tracks for labels."""

    def merge(
        self,
        wanted: Numbers,
        calls: Calls,
        *,
        above: Numbers,
        root: Numbers,
        most_levels: int,
        node: Numbers,
        own: Flags,
    ) -> None:
        """Write into ``node`` the node of each wanted call and of all calls above it; it is -1 for a call without one yet.

        ``above`` is the call above each, -1 for one below its ``root``; ``own`` becomes 0 for calls below the deepest level.
        """

    def nodes(self) -> TreeNodes: ...


def call_tree(tracks: Numbers, kinds: Flags) -> CallTree:
    """A tree of roots alone, by the compiled loop if it was built."""
    library = _library()
    if library is None:
        return PlainTree(tracks, kinds)
    return _CompiledTree(library, tracks, kinds)


class _CompiledTree:
    def __init__(self, library: ctypes.CDLL, tracks: Numbers, kinds: Flags) -> None:
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
        calls: Calls,
        *,
        above: Numbers,
        root: Numbers,
        most_levels: int,
        node: Numbers,
        own: Flags,
    ) -> None:
        columns = (wanted, above, root, *calls, node, own)
        assert all(column.flags.c_contiguous for column in columns), "the library reads one value behind the other"
        pointers = [column.ctypes.data for column in columns]
        merged = self._library.tree_merge(
            self._tree, pointers[0], wanted.size, *pointers[1:6], above.size, most_levels, *pointers[6:]
        )
        if not merged:
            raise MemoryError("no memory for a tree")

    def nodes(self) -> TreeNodes:
        tree = self._tree.contents
        columns = []
        for name, dtype in _NODE_TYPES.items():
            columns.append(view(getattr(tree, name), tree.count, dtype).copy())
        return TreeNodes(*columns)


class PlainTree:
    """The same without the library."""

    def __init__(self, tracks: Numbers, kinds: Flags) -> None:
        self._parent = [-1] * tracks.size
        self._label = tracks.tolist()
        self._kind = kinds.tolist()
        self._depth = [0] * tracks.size
        self._began = [_NEVER] * tracks.size
        self._below: dict[tuple[int, int, int], int] = {}

    def merge(
        self,
        wanted: Numbers,
        calls: Calls,
        *,
        above: Numbers,
        root: Numbers,
        most_levels: int,
        node: Numbers,
        own: Flags,
    ) -> None:
        for innermost in wanted.tolist():
            chain = []
            call = innermost
            while call >= 0 and node[call] < 0:
                chain.append(call)
                call = int(above[call])
            for call in reversed(chain):
                outer = int(above[call])
                parent = int(root[call] if outer < 0 else node[outer])
                if self._depth[parent] < most_levels:
                    node[call] = self._node_of(parent, calls, call)
                else:
                    node[call] = parent
                    own[call] = 0

    def nodes(self) -> TreeNodes:
        lists = (self._parent, self._label, self._kind, self._depth, self._began)
        columns = [np.array(values, dtype=dtype) for values, dtype in zip(lists, _NODE_TYPES.values())]
        return TreeNodes(*columns)

    def _node_of(self, parent: int, calls: Calls, call: int) -> int:
        label, kind, start = int(calls.label[call]), int(calls.kind[call]), int(calls.start[call])
        node = self._below.setdefault((parent, label, kind), len(self._parent))
        if node == len(self._parent):
            self._parent.append(parent)
            self._label.append(label)
            self._kind.append(kind)
            self._depth.append(self._depth[parent] + 1)
            self._began.append(start)
        self._began[node] = min(self._began[node], start)
        return node


def nearest_known(above: Numbers, found: Numbers) -> bool:
    """Replace each UNKNOWN in ``found`` by the value of the nearest call above that has one, NOTHING_AROUND if none has.

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
