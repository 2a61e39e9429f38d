"""Compare the code of two versions of a file, statement by statement; comments and
formatting do not count.
"""

from __future__ import annotations

import ast
import copy
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path, PurePosixPath
from typing import NamedTuple, TypeGuard, TypeVar

import msgspec

from perfgate.conductor.code.statement_chains import chains, makes_nothing
from perfgate.document.run import CodeChange

# A larger file was hardly written by hand, and comparing it would take seconds.
MAX_BYTES = 1_000_000
# Of a larger change the first places are kept: they name causes and do not affect the
# verdict.
MAX_CHANGES = 500
# A place with more statements is new code, through which values flow anyway; a longer
# line was not written to be read.
_MOST_STATEMENTS = 200
_LONGEST_LINE = 200
# In all places together: they stand in every run document.
_MOST_LINES = 2_000
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS = (*FUNCTIONS, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)
# Code that may compute from the text of code: from docstrings, comments, and from what
# is defined.
_READS_CODE = re.compile(
    r"__doc__|getdoc|docstring|getsource|getcomments|linecache|\binspect\b|\bpydoc\b|\bdoctest\b|\bast\b|\btokenize\b"
    r"|__subclasses__|__init_subclass__|\bmetaclass\b|getmembers|get_type_hints|__annotations__|__code__"
    r"|__dict__|(?<![.\w])(?:vars|dir|globals|locals|exec|eval|__import__)\(|\bsignature\("
    r"|\bimportlib\b|\bpkgutil\b|\brunpy\b|\bbuiltins\b"
)
# Every line that the expression matches holds one of these.
READERS = (
    "__doc__",
    "getdoc",
    "docstring",
    "getsource",
    "getcomments",
    "linecache",
    "inspect",
    "pydoc",
    "doctest",
    "ast",
    "tokenize",
    "__subclasses__",
    "__init_subclass__",
    "metaclass",
    "getmembers",
    "get_type_hints",
    "__annotations__",
    "__code__",
    "__dict__",
    "vars(",
    "dir(",
    "globals(",
    "locals(",
    "signature(",
    "exec(",
    "eval(",
    "__import__(",
    "importlib",
    "pkgutil",
    "runpy",
    "builtins",
)
# What a project computes with, and what measures it: neither computes anything from the
# text of the project.
PLATFORM = ("torch", "torch_npu", "numpy", "perfgate")
# Folders that hold packages but are none themselves.
PACKAGE_FOLDERS = frozenset({"src", "lib", "python"})
# Fields with nested statements, which count separately.
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


NodeType = TypeVar("NodeType", bound=ast.AST)


class Statement(NamedTuple):
    """One statement without nested statements, from ``line`` to ``last``; ``function``
    is the first line of the function around it.
    """

    line: int
    code: str
    function: int | None
    last: int
    node: ast.stmt


def code_changes(base: Path, head: Path, files: Iterable[str]) -> list[CodeChange]:
    """The changed places of head's files, file by file; tests are left out.

    ``files`` stand under head, and those that are not new under base. A function begins
    at its first decorator, as Python's own code objects have it.
    """
    places: list[CodeChange] = []
    for file in files:
        if _holds_tests(PurePosixPath(file)) or (tree := parse(head / file)) is None:
            continue
        functions = {
            first_line(node): node
            for node in ast.walk(tree)
            if isinstance(node, FUNCTIONS)
        }
        text = (head / file).read_text("utf-8", "replace").splitlines()
        for at, changed in changes(statements(base / file), statements(head / file)):
            places += _places(file, at, changed, functions, text)
    del places[MAX_CHANGES:]
    # Of a change as long as a repository the first places have text and chains.
    lines = 0
    for index, place in enumerate(places):
        lines += len(place.text)
        if lines > _MOST_LINES:
            places[index] = msgspec.structs.replace(place, text=[], chains=[])
    return places


def _places(
    file: str,
    at: int,
    changed: Sequence[Statement],
    functions: Mapping[int, ast.FunctionDef | ast.AsyncFunctionDef],
    text: Sequence[str],
) -> Iterator[CodeChange]:
    """Yield the changed statements function by function; a changed definition counts as
    a change inside it.
    """
    groups: dict[int | None, list[Statement]] = defaultdict(list)
    for statement in changed:
        if isinstance(statement.node, FUNCTIONS):
            groups[statement.line].append(statement)
        else:
            groups[statement.function].append(statement)
    if not groups:
        around = [
            line
            for line, node in functions.items()
            if line <= at <= (node.end_lineno or line)
        ]
        groups[max(around, default=None)] = []
    for begins, inner in groups.items():
        first = last = at
        if inner:
            first = inner[0].line
            last = max(statement.last for statement in inner)
        lines = text[first - 1 : min(last, first + _MOST_STATEMENTS)]
        change = CodeChange(
            file=file,
            first=first,
            last=last,
            chains=_chains(inner[:_MOST_STATEMENTS], text),
            imports=bool(inner)
            and all(isinstance(statement.node, _IMPORTS) for statement in inner),
            text=[line.strip()[:_LONGEST_LINE] for line in lines],
        )
        function = functions.get(begins or 0)
        if function is None:
            yield change
        else:
            yield msgspec.structs.replace(
                change, function=function.name, begins=begins, ends=function.end_lineno
            )


def _chains(
    inner: Sequence[Statement], text: Sequence[str]
) -> list[list[tuple[int, int]]]:
    """Statements that pass values on to each other; a loop belongs to its body if that
    is one chain.
    """
    working = [statement for statement in inner if not makes_nothing(statement.node)]
    spans = []
    for numbers in chains([statement.node for statement in working]):
        spans.append(
            [(working[number].line, working[number].last) for number in numbers]
        )
    for single in spans.copy():
        if len(single) > 1:
            continue
        ((first, last),) = single
        lines = set()
        for number in range(first + 1, last + 1):
            line = text[number - 1].strip()
            if line and not line.startswith("#"):
                lines.add(number)
        for chain in spans:
            covered: set[int] = set()
            for begin, end in chain:
                covered.update(range(begin, end + 1))
            if chain is not single and lines and lines <= covered:
                chain.insert(0, single.pop())
                break
    return list(filter(None, spans))


def _holds_tests(file: PurePosixPath) -> bool:
    is_test = (
        file.name.startswith("test_")
        or file.name.endswith("_test.py")
        or file.name == "conftest.py"
    )
    return is_test or bool({"test", "tests"} & set(file.parts[:-1]))


def first_line(
    definition: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef,
) -> int:
    """A definition begins at its first decorator, as Python's own code objects have it."""
    if definition.decorator_list:
        return min(definition.lineno, definition.decorator_list[0].lineno)
    return definition.lineno


def changes(
    before: Sequence[Statement], after: Sequence[Statement]
) -> Iterator[tuple[int, Sequence[Statement]]]:
    """Yield the runs of statements that differ, in the order of the second version, if
    that has any statements.

    With each comes the line of its first statement, or of the statement that now
    follows removed statements.
    """
    old = [statement.code for statement in before]
    new = [statement.code for statement in after]
    for tag, _, _, first, last in SequenceMatcher(
        None, old, new, autojunk=False
    ).get_opcodes():
        if tag != "equal" and after:
            yield after[min(first, len(after) - 1)].line, after[first:last]


def statements(file: Path) -> list[Statement]:
    """The statements of a file in order; none for a missing or very large file or
    invalid Python.
    """
    if not file.is_file() or file.stat().st_size > MAX_BYTES:
        return []
    tree = parse(file)
    if tree is None:
        return []
    try:
        inside = list(_inside(tree, None))
    except RecursionError:  # a statement too deep to be written out
        return []
    return sorted(inside, key=lambda statement: statement.line)


def _last_line(statement: ast.stmt) -> int:
    """The last line of a statement, with the statements inside it, because a new loop
    or context changes how they run.

    A definition ends before its body.
    """
    last = statement.end_lineno or statement.lineno
    if isinstance(statement, DEFINITIONS) and statement.body:
        return max(statement.lineno, min(statement.body[0].lineno - 1, last))
    return last


def same_code(before: bytes, after: bytes) -> bool:
    """Whether two versions of a Python file have the same syntax tree apart from
    docstrings, which other code may read.

    A type comment counts, because torch.jit reads it.
    """
    if max(len(before), len(after)) > MAX_BYTES:
        return False
    try:
        old = _without_docstrings(ast.parse(before, type_comments=True))
        new = _without_docstrings(ast.parse(after, type_comments=True))
        return ast.dump(old) == ast.dump(new)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def reads_code(line: str) -> bool:
    """Whether a line of code may read docstrings, source or definitions."""
    return _READS_CODE.search(line) is not None


def imported_packages(line: str) -> set[str]:
    """The top-level packages that a line imports; none if it is not an import, or of
    the project's own package.
    """
    names = set()
    for statement in line.split("#", maxsplit=1)[0].split(";"):
        words = statement.split()
        if words[:1] == ["from"]:
            names.update(words[1:2])
        elif words[:1] == ["import"]:
            for part in " ".join(words[1:]).split(","):
                names.update(part.split()[:1])
    return {name.partition(".")[0] for name in names if not name.startswith(".")}


def parse(file: Path) -> ast.Module | None:
    """The code of a file without docstrings, None if it cannot be read or is not valid
    Python.
    """
    try:
        return _without_docstrings(ast.parse(file.read_bytes()))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


def holds_docstring(
    node: ast.AST,
) -> TypeGuard[ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    return (
        isinstance(node, (ast.Module, *DEFINITIONS))
        and ast.get_docstring(node, clean=False) is not None
    )


def alone(node: NodeType) -> NodeType:
    """A statement without the statements inside it."""
    outer = copy.copy(node)
    for block in BLOCKS:
        if block in node._fields:
            setattr(outer, block, [])
    return outer


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if holds_docstring(node):
            del node.body[0]
    return tree


def _inside(node: ast.AST, function: int | None) -> Iterator[Statement]:
    for child in ast.iter_child_nodes(node):
        inner = function
        if isinstance(child, ast.stmt):
            outer = alone(child)
            first = child.lineno
            if isinstance(child, FUNCTIONS):
                first = inner = first_line(child)
            yield Statement(first, ast.dump(outer), function, _last_line(child), outer)
        if not isinstance(child, ast.expr):
            yield from _inside(child, inner)
