"""The source of perfgate and of its plug-ins, looked through by text first: parsing all of it takes seconds."""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from perfgate.system.folders import PACKAGE

PLUGINS = PACKAGE.parent / "plugins"


@cache
def package_modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@cache
def all_modules() -> list[Path]:
    return sorted([*package_modules(), *PLUGINS.glob("*/perfgate_*/*.py")])


@cache
def source(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def text_constants(path: Path) -> frozenset[str]:
    """Adjacent ones are joined, as Python joins them."""
    nodes = ast.walk(ast.parse(source(path)))
    return frozenset(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


def nodes(path: Path, wanted: re.Pattern[str]) -> Iterator[ast.AST]:
    """The statements and expressions on whose lines something wanted stands, each after what holds it."""
    text = source(path)
    lines = [text.count("\n", 0, match.start()) + 1 for match in wanted.finditer(text)]
    waiting: list[ast.AST] = [ast.parse(text)] if lines else []
    while waiting:
        node = waiting.pop()
        # A decorator stands before its function, whose own place does not include it.
        if isinstance(node, ast.stmt | ast.expr) and not getattr(node, "decorator_list", None):
            at = bisect_left(lines, node.lineno)
            if at == len(lines) or lines[at] > (node.end_lineno or node.lineno):
                continue
        yield node
        waiting.extend(ast.iter_child_nodes(node))


def calls(path: Path, names: frozenset[str]) -> Iterator[tuple[str, ast.Call]]:
    """The calls with positional arguments whose function, or method, is one of the names."""
    for node in nodes(path, _calling(names)):
        if isinstance(node, ast.Call) and node.args:
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in names:
                yield name, node


@cache
def _calling(names: frozenset[str]) -> re.Pattern[str]:
    return re.compile(rf"\b(?<!def )(?:{'|'.join(sorted(names))})\s*\(")
