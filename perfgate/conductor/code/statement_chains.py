"""Find the statements of a change that pass values on to each other: together they are
one chain, independent of other changes.
"""

from __future__ import annotations

import ast
import builtins
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# Methods that fill a list or a dictionary, independent of its contents.
_FILLING = frozenset({"append", "extend", "insert", "add", "update", "setdefault"})
# Properties of a tensor known before it is computed.
_DESCRIBING = frozenset({"shape", "dtype", "device", "ndim"})
_PASSING_NOTHING = frozenset({"self", "cls", *dir(builtins)})


class _Names(NamedTuple):
    """The variables and attributes (``self.weights``) that a statement reads, gives a
    value to, and adds one to.
    """

    read: set[str]
    bound: set[str]
    filled: set[str]


def chains(statements: Sequence[ast.stmt]) -> list[list[int]]:
    """The numbers of the statements, grouped by the values that they pass on.

    The statements stand in the order in which they run, without those inside them. A
    constant connects no statements, nor does the number of a loop's turn: two lines may
    be counted alike and have no other relation.
    """
    chain_of = list(range(len(statements)))
    sources: dict[str, set[int]] = defaultdict(set)
    for number, statement in enumerate(statements):
        names = _names(statement)
        for name in names.read & sources.keys():
            for source in sources[name]:
                _join(chain_of, number, source)
        passes = set()
        if names.read and not _counts_turns(statement):
            passes.add(number)
        for name in names.bound:
            sources[name] = passes
        for name in names.filled:
            sources[name] = sources[name] | passes
    chains: dict[int, list[int]] = {}
    for number, chain in enumerate(chain_of):
        chains.setdefault(chain, []).append(number)
    return list(chains.values())


def _join(chain_of: list[int], first: int, second: int) -> None:
    """Give the chains of two statements the smaller number of both."""
    smaller, larger = sorted((chain_of[first], chain_of[second]))
    for number, chain in enumerate(chain_of):
        if chain == larger:
            chain_of[number] = smaller


def makes_nothing(statement: ast.stmt) -> bool:
    """Whether a statement computes nothing that could cost something: an empty list to
    be filled, an import, a plain `def`.
    """
    if isinstance(
        statement, (ast.Pass, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal)
    ):
        return True
    if isinstance(statement, _DEFINITIONS):
        has_defaults = not isinstance(statement, ast.ClassDef) and (
            statement.args.defaults or statement.args.kw_defaults
        )
        return not statement.decorator_list and not has_defaults
    return isinstance(statement, (ast.Assign, ast.AnnAssign)) and _is_empty(
        statement.value
    )


def _is_empty(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Dict):
        return not value.keys
    if isinstance(value, (ast.List, ast.Set)):
        return not value.elts
    return value is None or (
        isinstance(value, ast.Tuple) and all(map(_is_empty, value.elts))
    )


def _names(statement: ast.stmt) -> _Names:
    names = _Names(set(), set(), set())
    if isinstance(statement, _DEFINITIONS):
        return names
    inner = set()
    for part in ast.walk(statement):
        if isinstance(part, ast.comprehension):
            for node in ast.walk(part.target):
                if isinstance(node, ast.Name):
                    inner.add(node.id)
    _collect(statement, names)
    if isinstance(statement, ast.AugAssign):
        names.read.update(names.bound)
    names.read.difference_update(inner, _PASSING_NOTHING)
    names.bound.difference_update(inner)
    return names


def _collect(node: ast.AST, names: _Names) -> None:
    receiver = _receiver(node)
    if (
        receiver is not None
        and isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
    ):
        if node.func.attr in _FILLING:
            names.filled.add(receiver)
            for argument in (*node.args, *node.keywords):
                _collect(argument, names)
            return
        names.bound.add(receiver)  # in place
    if (
        isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Store)
        and (name := _name(node.value))
    ):
        names.filled.add(name)
        _collect(node.slice, names)
        return
    if (name := _name(node)) is not None:
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(
            node.ctx, ast.Store
        ):
            names.bound.add(name)
            return
        names.read.add(name)
    if isinstance(node, ast.Attribute) and node.attr in _DESCRIBING:
        return
    for child in ast.iter_child_nodes(node):
        _collect(child, names)


def _receiver(node: ast.AST) -> str | None:
    """The object that a call changes: the list that it fills, the tensor of a method
    that ends in an underscore.
    """
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    method = node.func.attr
    changes = method in _FILLING or (method.endswith("_") and not method.endswith("__"))
    return _name(node.func.value) if changes else None


def _name(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return None


def _counts_turns(statement: ast.stmt) -> bool:
    if not isinstance(statement, (ast.For, ast.AsyncFor)):
        return False
    over = statement.iter
    return (
        isinstance(over, ast.Call)
        and isinstance(over.func, ast.Name)
        and over.func.id == "range"
    )
