"""The changed statements of two versions of a Python file, and the lines of each that show that it ran.

Comments and formatting are no change; docstrings are, because code may read them.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from perfgate.conductor.code.code_changes import MAX_BYTES
from perfgate.protocol import LOADED

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
_BLOCK_PARTS = (ast.stmt, ast.ExceptHandler, ast.match_case)
# Compilers give these no line, or leave it out where they can: they ran if something else of their function did.
_WITHOUT_LINE = (
    ast.Pass,
    ast.Break,
    ast.Continue,
    ast.Global,
    ast.Nonlocal,
    ast.Try,
    ast.ExceptHandler,
    ast.match_case,
)
_SIMPLE = (
    *(ast.Constant, ast.Name, ast.Attribute, ast.Subscript, ast.Tuple, ast.List, ast.Load, ast.UnaryOp, ast.USub),
    *(ast.BinOp, ast.BitOr, ast.Slice),
)
# A function below any other decorator may be registered, compiled, or stand for something else.
_PLAIN_DECORATORS = frozenset({
    *("staticmethod", "classmethod", "property", "setter", "cached_property", "cache", "lru_cache", "contextmanager"),
    *("no_grad", "inference_mode", "override", "abstractmethod"),
})  # fmt: skip
# A class may have these without anything changing unless it is used: then they run.
_HARMLESS_DUNDERS = frozenset({"__init__", "__repr__", "__str__"})


class ChangedStatement(NamedTuple):
    """A changed statement of one side: it ran if one of ``lines`` did.

    ``function`` is the function or class around it, by its qualified name; empty for code of the module. ``definition`` are
    the lines that ran if only a function or class was defined that it belongs to. That alone is no use of it, unless
    something reads definitions. ``around`` are the lines of the body of the innermost function.
    """

    line: int
    function: str
    lines: frozenset[int]
    definition: frozenset[int] = frozenset()
    around: frozenset[int] = frozenset()


class UncomparableError(Exception):
    """A version is no Python, or too large: which statements changed is unknown."""


class _Part(NamedTuple):
    """A statement, handler or case without those inside it: where it stands, and what it is."""

    key: tuple[str, str, int]
    statement: ChangedStatement


class _Scope(NamedTuple):
    """What surrounds a statement: the qualified name, the lines of the innermost function, and of the definition.

    ``other_names`` are all names in the other version, None if it has star imports: a class whose name is among them may
    stand for another one.
    """

    other_names: frozenset[str] | None
    name: str = ""
    function_lines: frozenset[int] = frozenset()
    definition: frozenset[int] = frozenset()
    in_function: bool = False
    in_plain_class: bool = False


def changed_statements(
    before: bytes | None, after: bytes | None
) -> tuple[list[ChangedStatement], list[ChangedStatement]]:
    """The statements that only one of the versions has, of each; None is a file that is not there.

    Raises UncomparableError.
    """
    trees = [None if source is None else _parsed(source) for source in (before, after)]
    try:
        names = [_all_names(tree) for tree in trees]
        old = [] if trees[0] is None else list(_parts(trees[0], _Scope(names[1]), 0))
        new = [] if trees[1] is None else list(_parts(trees[1], _Scope(names[0]), 0))
        texts = ["" if tree is None else ast.dump(tree) for tree in trees]
    except RecursionError:
        raise UncomparableError from None
    keys = [part.key for part in old], [part.key for part in new]
    removed: list[ChangedStatement] = []
    added: list[ChangedStatement] = []
    for tag, first, last, new_first, new_last in SequenceMatcher(None, *keys, autojunk=False).get_opcodes():
        if tag != "equal":
            removed += [part.statement for part in old[first:last]]
            added += [part.statement for part in new[new_first:new_last]]
    is_explained = bool(removed or added) or texts[0] == texts[1]
    for tree, changes in zip(trees, (removed, added)):
        # A file that is new or gone matters by being there; an unexplained difference may be anywhere.
        if tree is not None and (None in trees or not is_explained):
            changes.append(ChangedStatement(1, "", frozenset({LOADED})))
    return removed, added


def _parsed(source: bytes) -> ast.Module:
    if len(source) > MAX_BYTES:
        raise UncomparableError
    try:
        # torch.jit reads type comments.
        tree = ast.parse(source, type_comments=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UncomparableError from None
    tree.type_ignores = []
    return tree


def _all_names(tree: ast.Module | None) -> frozenset[str] | None:
    names: set[str] = set()
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.alias):
            if node.name == "*":
                return None
            names.update((node.name, node.asname or ""))
        elif isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, _DEFINITIONS):
            names.add(node.name)
    return frozenset(names)


def _parts(node: ast.AST, scope: _Scope, depth: int) -> Iterator[_Part]:
    """Yield all statements in their order, each before those inside it."""
    for block in _BLOCKS:
        children: Sequence[ast.AST] = getattr(node, block, [])
        if not isinstance(children, list):  # the body of a lambda
            continue
        for position, child in enumerate(children):
            is_docstring = position == 0 and block == "body" and _holds_docstring(node)
            dumped = ast.dump(_alone(child))
            key = (f"docstring {dumped}" if is_docstring else dumped, block, depth)
            yield _Part(key, _docstring(child, scope) if is_docstring else _statement(child, scope))
            yield from _parts(child, _inside(child, scope), depth + 1)


def _holds_docstring(node: ast.AST) -> bool:
    return isinstance(node, (ast.Module, *_DEFINITIONS)) and ast.get_docstring(node, clean=False) is not None


def _alone(node: ast.AST) -> ast.AST:
    alone = copy.copy(node)
    for block in _BLOCKS:
        if block in node._fields:
            setattr(alone, block, [])
    return alone


def _first_line(node: ast.AST) -> int:
    """The first line of a statement, with its decorators; of a case that of its pattern."""
    if isinstance(node, ast.match_case):
        return node.pattern.lineno
    assert isinstance(node, (ast.stmt, ast.ExceptHandler))
    decorators = node.decorator_list if isinstance(node, _DEFINITIONS) else []
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _last_line(node: ast.AST) -> int:
    if isinstance(node, ast.match_case):
        return max(_last_line(child) for child in node.body)
    assert isinstance(node, (ast.stmt, ast.ExceptHandler))
    return node.end_lineno or node.lineno


def _inner(node: ast.AST) -> Iterator[ast.AST]:
    for block in _BLOCKS:
        children = getattr(node, block, [])
        if isinstance(children, list):  # the body of a lambda is none
            yield from (child for child in children if isinstance(child, _BLOCK_PARTS))


def _own_lines(node: ast.AST) -> frozenset[int]:
    """The lines of a statement without those of the statements inside it, unless they share one."""
    own = set(range(_first_line(node), _last_line(node) + 1))
    inside = list(_inner(node))
    shared = {_first_line(child) for child in inside} & {_first_line(node)}
    for child in inside:
        own -= set(range(_first_line(child), _last_line(child) + 1))
    return frozenset(own | shared)


def _body_lines(node: ast.AST) -> frozenset[int]:
    lines: set[int] = set()
    for child in _inner(node):
        lines.update(range(_first_line(child), _last_line(child) + 1))
    return frozenset(lines)


def _inside(node: ast.AST, scope: _Scope) -> _Scope:
    """The scope of the statements inside a node."""
    if isinstance(node, _FUNCTIONS):
        name = f"{scope.name}.{node.name}" if scope.name else node.name
        return _Scope(scope.other_names, name, _body_lines(node), _own_lines(node), in_function=True)
    if isinstance(node, ast.ClassDef):
        name = f"{scope.name}.{node.name}" if scope.name else node.name
        plain = _is_plain_class(node, scope)
        return scope._replace(name=name, definition=_own_lines(node), in_plain_class=plain)
    return scope


def _docstring(node: ast.AST, scope: _Scope) -> ChangedStatement:
    """A docstring is there once its function or class is defined, or its module loaded."""
    return ChangedStatement(_first_line(node), scope.name, frozenset(), scope.definition or frozenset({LOADED}))


def _statement(node: ast.AST, scope: _Scope) -> ChangedStatement:
    line, own = _first_line(node), _own_lines(node)
    if isinstance(node, _FUNCTIONS):
        name = f"{scope.name}.{node.name}" if scope.name else node.name
        body = _body_lines(node)
        if _is_plain_function(node, scope):
            return ChangedStatement(line, name, body, own)
        return ChangedStatement(line, name, own | body)
    if isinstance(node, ast.ClassDef) and _is_plain_class(node, scope):
        name = f"{scope.name}.{node.name}" if scope.name else node.name
        return ChangedStatement(line, name, frozenset(), own)
    if scope.in_plain_class and not scope.in_function and _is_plain_value(node):
        return ChangedStatement(line, scope.name, frozenset(), own)
    around = scope.function_lines
    if _has_line(node):
        return ChangedStatement(line, scope.name, own, around=around)
    return ChangedStatement(line, scope.name, own | (around or frozenset({LOADED})), around=around)


def _has_line(node: ast.AST) -> bool:
    """Whether running a statement always reports one of its lines."""
    if isinstance(node, _WITHOUT_LINE) or type(node).__name__ == "TryStar":
        return False
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, (ast.Constant, ast.Name, ast.Tuple))
    if isinstance(node, ast.AnnAssign):
        return node.value is not None
    if isinstance(node, (ast.If, ast.While, ast.Assert)):
        return not isinstance(node.test, (ast.Constant, ast.Name))
    return True


def _is_plain_function(node: ast.FunctionDef | ast.AsyncFunctionDef, scope: _Scope) -> bool:
    """Whether defining a function does nothing but bind its name: only a call can tell that it is there."""
    is_dunder = node.name.startswith("__") and node.name.endswith("__") and node.name not in _HARMLESS_DUNDERS
    if scope.in_function or (is_dunder and not scope.in_plain_class):
        return False
    if not all(_name_of(decorator) in _PLAIN_DECORATORS for decorator in node.decorator_list):
        return False
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    annotations = [argument.annotation for argument in every if argument is not None]
    expressions = [*arguments.defaults, *arguments.kw_defaults, *annotations, node.returns]
    return all(_is_simple(expression) for expression in expressions)


def _is_plain_class(node: ast.ClassDef, scope: _Scope) -> bool:
    """Whether a class of the module is new or gone, and defining it does nothing but bind its name.

    That is not so if a class above it registers those below, for which the loaded code is searched.
    """
    if scope.name or scope.other_names is None or node.name in scope.other_names:
        return False
    return not node.decorator_list and not node.keywords and all(_is_simple(base) for base in node.bases)


def _name_of(decorator: ast.expr) -> str:
    """The last part of its name: that of ``@torch.no_grad()`` is ``no_grad``."""
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _is_plain_value(node: ast.AST) -> bool:
    if isinstance(node, ast.Assign):
        return _is_simple(node.value) and all(isinstance(target, ast.Name) for target in node.targets)
    return isinstance(node, ast.Pass) or (isinstance(node, ast.AnnAssign) and _is_simple(node.value))


def _is_simple(expression: ast.expr | None) -> bool:
    return expression is None or all(isinstance(node, _SIMPLE) for node in ast.walk(expression))


def names_of_functions(source: bytes) -> dict[str, set[str]]:
    """The names that each function of a module uses, by its own name; functions of one name count as one."""
    names_of: dict[str, set[str]] = {}
    try:
        tree = ast.parse(source)
        functions = [node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return names_of
    for function in functions:
        names = names_of.setdefault(function.name, set())
        for node in ast.walk(function):
            if isinstance(node, ast.Name):
                names.add(node.id)
            elif isinstance(node, ast.Attribute):
                names.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                names.add(node.value)
    return names_of
