"""The changed statements of two versions of a Python file, and the lines of each that
show that it ran.

Comments and formatting do not count as a change; docstrings do, because code may read
them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import NamedTuple

from perfgate.conductor.code.code_changes import (
    BLOCKS,
    DEFINITIONS,
    FUNCTIONS,
    MAX_BYTES,
    alone,
    first_line,
    holds_docstring,
)
from perfgate.protocol import LOADED

_BLOCK_PARTS = (ast.stmt, ast.ExceptHandler, ast.match_case)
# Compilers give these no line, or leave it out where they can: they ran if something
# else of their function did.
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
    ast.Constant,
    ast.Name,
    ast.Attribute,
    ast.Subscript,
    ast.Tuple,
    ast.List,
    ast.Load,
    ast.UnaryOp,
    ast.USub,
    ast.BinOp,
    ast.BitOr,
    ast.Slice,
)
# A function below any other decorator may be registered, compiled, or stand for
# something else.
_PLAIN_DECORATORS = frozenset(
    {
        "staticmethod",
        "classmethod",
        "property",
        "setter",
        "cached_property",
        "cache",
        "lru_cache",
        "contextmanager",
        "no_grad",
        "inference_mode",
        "override",
        "abstractmethod",
    }
)
# A class may have these without anything changing unless it is used: then they run.
_HARMLESS_DUNDERS = frozenset({"__init__", "__repr__", "__str__"})


class ChangedStatement(NamedTuple):
    """A changed statement of one side: it ran if one of ``lines`` did.

    ``function`` is the function or class around it, by its qualified name; empty for
    code of the module. ``definition`` are the lines that ran if only a function or
    class was defined that it belongs to. That alone does not count as use, unless
    something reads definitions. ``around`` are the lines of the body of the innermost
    function.
    """

    line: int
    function: str
    lines: frozenset[int]
    definition: frozenset[int] = frozenset()
    around: frozenset[int] = frozenset()


class UncomparableError(Exception):
    """A version is not Python, or too large: which statements changed is unknown."""


class _Part(NamedTuple):
    """A statement, handler or case without those inside it: where it stands, and what
    it is.
    """

    key: tuple[str, str, int]
    statement: ChangedStatement


class _Scope(NamedTuple):
    """What surrounds a statement: the qualified name, the lines of the innermost
    function, and of the definition.

    ``other_names`` are all names in the other version, None if it has star imports: a
    class whose name is among them may replace another class.
    """

    other_names: frozenset[str] | None
    name: str = ""
    function_lines: frozenset[int] = frozenset()
    definition: frozenset[int] = frozenset()
    in_function: bool = False
    in_plain_class: bool = False

    def name_of(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    ) -> str:
        """The qualified name of a definition in this scope."""
        return f"{self.name}.{node.name}" if self.name else node.name


class _Version(NamedTuple):
    """One version of a file; its ``names`` are None if it has star imports."""

    tree: ast.Module
    names: frozenset[str] | None
    text: str


_NO_FILE = _Version(ast.Module([], []), frozenset(), "")


def changed_statements(
    before: bytes | None, after: bytes | None
) -> tuple[list[ChangedStatement], list[ChangedStatement]]:
    """The removed and the added statements between two versions of a file; None is a
    missing file.

    Raises UncomparableError.
    """
    try:
        base, head = _parsed(before), _parsed(after)
        old = list(_parts(base.tree, _Scope(head.names), 0))
        new = list(_parts(head.tree, _Scope(base.names), 0))
    except RecursionError:
        raise UncomparableError from None
    old_keys = [part.key for part in old]
    new_keys = [part.key for part in new]
    removed = []
    added = []
    for tag, first, last, new_first, new_last in SequenceMatcher(
        None, old_keys, new_keys, autojunk=False
    ).get_opcodes():
        if tag != "equal":
            removed += [part.statement for part in old[first:last]]
            added += [part.statement for part in new[new_first:new_last]]
    is_explained = bool(removed or added) or base.text == head.text
    # A file that is new or gone matters by being there; an unexplained difference may
    # be anywhere.
    if not is_explained or before is None or after is None:
        anywhere = ChangedStatement(1, "", frozenset({LOADED}))
        if before is not None:
            removed.append(anywhere)
        if after is not None:
            added.append(anywhere)
    return removed, added


def _parsed(source: bytes | None) -> _Version:
    if source is None:
        return _NO_FILE
    if len(source) > MAX_BYTES:
        raise UncomparableError
    try:
        # torch.jit reads type comments.
        tree = ast.parse(source, type_comments=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UncomparableError from None
    tree.type_ignores = []
    return _Version(tree, _all_names(tree), ast.dump(tree))


def _all_names(tree: ast.Module) -> frozenset[str] | None:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.alias):
            if node.name == "*":
                return None
            names.update((node.name, node.asname or ""))
        elif isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, DEFINITIONS):
            names.add(node.name)
    return frozenset(names)


def _parts(node: ast.AST, scope: _Scope, depth: int) -> Iterator[_Part]:
    """Yield all statements in their order, each before those inside it."""
    for block, children in _blocks(node):
        for position, child in enumerate(children):
            code = ast.dump(alone(child))
            if position == 0 and block == "body" and holds_docstring(node):
                code = f"docstring {code}"
                # It is there once its function or class is defined, or its module
                # loaded.
                statement = ChangedStatement(
                    _first_line(child),
                    scope.name,
                    frozenset(),
                    scope.definition or frozenset({LOADED}),
                )
            else:
                statement = _statement(child, scope)
            yield _Part((code, block, depth), statement)
            yield from _parts(child, _inside(child, scope), depth + 1)


def _blocks(node: ast.AST) -> Iterator[tuple[str, list[ast.AST]]]:
    for block in BLOCKS:
        children = getattr(node, block, [])
        if isinstance(children, list):  # not the body of a lambda
            yield block, children


def _first_line(node: ast.AST) -> int:
    """The first line of a statement, with its decorators, or of the pattern of a case."""
    if isinstance(node, ast.match_case):
        return node.pattern.lineno
    if isinstance(node, DEFINITIONS):
        return first_line(node)
    assert isinstance(node, (ast.stmt, ast.ExceptHandler))
    return node.lineno


def _last_line(node: ast.AST) -> int:
    if isinstance(node, ast.match_case):
        return _last_line(node.body[-1])
    assert isinstance(node, (ast.stmt, ast.ExceptHandler))
    return node.end_lineno or node.lineno


def _lines(node: ast.AST) -> range:
    return range(_first_line(node), _last_line(node) + 1)


def _own_lines(node: ast.AST) -> frozenset[int]:
    """The lines of a statement without the statements inside it, unless they share its
    first line.
    """
    own = frozenset(_lines(node)) - _body_lines(node)
    for child in _inner(node):
        if _first_line(child) == _first_line(node):
            return own | {_first_line(node)}
    return own


def _body_lines(node: ast.AST) -> frozenset[int]:
    """The lines of the statements inside a statement."""
    return frozenset[int]().union(*map(_lines, _inner(node)))


def _inner(node: ast.AST) -> Iterator[ast.AST]:
    for _, children in _blocks(node):
        for child in children:
            if isinstance(child, _BLOCK_PARTS):
                yield child


def _inside(node: ast.AST, scope: _Scope) -> _Scope:
    """The scope of the statements inside a node."""
    if isinstance(node, FUNCTIONS):
        return _Scope(
            scope.other_names,
            scope.name_of(node),
            _body_lines(node),
            _own_lines(node),
            in_function=True,
        )
    if isinstance(node, ast.ClassDef):
        plain = _is_plain_class(node, scope)
        return scope._replace(
            name=scope.name_of(node), definition=_own_lines(node), in_plain_class=plain
        )
    return scope


def _statement(node: ast.AST, scope: _Scope) -> ChangedStatement:
    line, own = _first_line(node), _own_lines(node)
    if isinstance(node, FUNCTIONS):
        body = _body_lines(node)
        if _is_plain_function(node, scope):
            return ChangedStatement(line, scope.name_of(node), body, own)
        return ChangedStatement(line, scope.name_of(node), own | body)
    if isinstance(node, ast.ClassDef) and _is_plain_class(node, scope):
        return ChangedStatement(line, scope.name_of(node), frozenset(), own)
    if scope.in_plain_class and not scope.in_function and _is_plain_value(node):
        return ChangedStatement(line, scope.name, frozenset(), own)
    around = scope.function_lines
    if _has_line(node):
        return ChangedStatement(line, scope.name, own, around=around)
    return ChangedStatement(
        line, scope.name, own | (around or frozenset({LOADED})), around=around
    )


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


def _is_plain_function(
    node: ast.FunctionDef | ast.AsyncFunctionDef, scope: _Scope
) -> bool:
    """Whether defining a function only binds its name: then only a call can tell that
    it exists.
    """
    is_dunder = (
        node.name.startswith("__")
        and node.name.endswith("__")
        and node.name not in _HARMLESS_DUNDERS
    )
    if scope.in_function or (is_dunder and not scope.in_plain_class):
        return False
    if not _PLAIN_DECORATORS.issuperset(map(_name_of, node.decorator_list)):
        return False
    arguments = node.args
    expressions = [*arguments.defaults, *arguments.kw_defaults, node.returns]
    for argument in (
        *arguments.posonlyargs,
        *arguments.args,
        *arguments.kwonlyargs,
        arguments.vararg,
        arguments.kwarg,
    ):
        if argument is not None:
            expressions.append(argument.annotation)
    return all(map(_is_simple, expressions))


def _is_plain_class(node: ast.ClassDef, scope: _Scope) -> bool:
    """Whether a class of the module is new or gone, and defining it only binds its
    name.

    A base class may also register its subclasses; the loaded code is searched for such
    classes.
    """
    if scope.name or scope.other_names is None or node.name in scope.other_names:
        return False
    return (
        not node.decorator_list
        and not node.keywords
        and all(map(_is_simple, node.bases))
    )


def _name_of(decorator: ast.expr) -> str:
    """The last part of its name, e.g. ``no_grad`` for ``@torch.no_grad()``."""
    if isinstance(decorator, ast.Call):
        decorator = decorator.func
    if isinstance(decorator, ast.Attribute):
        return decorator.attr
    if isinstance(decorator, ast.Name):
        return decorator.id
    return ""


def _is_plain_value(node: ast.AST) -> bool:
    if isinstance(node, ast.Assign):
        return _is_simple(node.value) and all(
            isinstance(target, ast.Name) for target in node.targets
        )
    return isinstance(node, ast.Pass) or (
        isinstance(node, ast.AnnAssign) and _is_simple(node.value)
    )


def _is_simple(expression: ast.expr | None) -> bool:
    return expression is None or all(
        isinstance(node, _SIMPLE) for node in ast.walk(expression)
    )


def names_of_functions(source: bytes) -> dict[str, set[str]]:
    """The names that each function of a module uses, by its own name; functions of one
    name count as one.
    """
    names_of: dict[str, set[str]] = {}
    try:
        tree = ast.parse(source)
        functions = [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]
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
