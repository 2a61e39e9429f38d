"""Every progress and note line that a person sees is a sentence of the catalogue: none is put together where it is shown."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from perfgate import errors
from perfgate.locale import Activity
from tests.each import each
from tests.source import all_modules, source

# Functions that show a line to a person, whatever object they belong to.
SHOWING = frozenset({"note", "say", "status", "echo", "warn", "announce", "progress"})
SHOWS = re.compile(rf"(?:{'|'.join(sorted(SHOWING))})\(")
# What they may be given: sentences, and what only passes sentences on.
SENTENCES = frozenset({"sentence", "Activity", "translate"})
PASSING_ON = frozenset({"cleaned", "escape", "log_lines", "join", "shown"})
BUILT_IN = frozenset({"str", "format", "replace", "strip", "rstrip", "lstrip"})
ERRORS = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
# There, `say` is the function that translates.
REPORT = "judging/report"
# What a person types, and where something lies: the same in every language.
CODE = re.compile(r"perfgate(?:: INCONCLUSIVE:)?|\\$ perfgate")
# The code of a message has no blanks.
WORDS = re.compile(r"[A-Za-z]{2,}[:,;.]?\s|\s[A-Za-z]{2,}")


class Functions:
    """The functions of all modules by their names, to see the texts that they return."""

    def __init__(self, trees: Iterable[ast.AST]) -> None:
        self._defined: dict[str, list[ast.FunctionDef]] = {}
        self._returned: dict[str, list[str]] = {}
        for tree in trees:
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef):
                    self._defined.setdefault(node.name, []).append(node)

    def returned(self, name: str) -> list[str]:
        """The texts of a name, looked for once."""
        if name not in self._returned:
            self._returned[name] = list(self.texts(name))
        return self._returned[name]

    def texts(self, name: str, seen: frozenset[str] = frozenset()) -> Iterator[str]:
        """The texts that stand in what the functions of a name return, and in what is returned there by others."""
        if name in seen | SENTENCES | PASSING_ON | BUILT_IN:
            return
        for function in self._defined.get(name, ()):
            for node in ast.walk(function):
                if isinstance(node, ast.Return) and node.value is not None:
                    yield from _texts(node.value)
                    for called in _called(node.value):
                        yield from self.texts(called, seen | {name})


def lines_without_translation(tree: ast.AST, functions: Functions) -> Iterator[int]:
    """The lines on which a text with words is shown that is no sentence, or an error's English text."""
    errors = _caught(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name(node) in SHOWING and node.args:
            shown = node.args[0]
            returned = [text for name in _called(shown) for text in functions.returned(name)]
            has_words = any(WORDS.search(CODE.sub("", text)) for text in [*_texts(shown), *returned])
            if has_words or (_quoted(shown) & errors and not _is_log(node)):
                yield node.lineno


def _called(value: ast.AST) -> set[str]:
    """The functions whose result is the value or a part of it, and not only a value in a sentence."""
    if isinstance(value, ast.Call):
        if _name(value) in SENTENCES:
            return set()
        inner = value.args if _name(value) in PASSING_ON | BUILT_IN else []
        names = set() if inner else {_called_name(value)}
        return names.union(*map(_called, inner))
    if isinstance(value, (ast.JoinedStr, ast.FormattedValue, ast.BinOp, ast.IfExp, ast.List, ast.Tuple, ast.Starred)):
        children = [value.body, value.orelse] if isinstance(value, ast.IfExp) else ast.iter_child_nodes(value)
        return set().union(*map(_called, children))
    return set()


def _caught(tree: ast.AST) -> set[str]:
    """The names of caught errors of ours, which have a text in the user's language."""
    handlers = [node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.name and node.type]
    kinds = {
        handler: {word.id for word in ast.walk(handler.type) if isinstance(word, ast.Name)} for handler in handlers
    }
    return {str(handler.name) for handler, names in kinds.items() if names & ERRORS}


def _quoted(shown: ast.AST) -> set[str]:
    """The names of which `str(name)` or `{name}` is shown."""
    quoted = set()
    for node in ast.walk(shown):
        if isinstance(node, ast.Call) and _called_name(node) == "str" and node.args:
            quoted |= {node.args[0].id} if isinstance(node.args[0], ast.Name) else set()
        elif isinstance(node, ast.FormattedValue) and isinstance(node.value, ast.Name):
            quoted.add(node.value.id)
    return quoted


def _is_log(call: ast.Call) -> bool:
    """Whether it writes the log of `perfgate serve`, whose readers are not those who asked."""
    return isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value).endswith("troubles")


def _name(call: ast.Call) -> str:
    return _called_name(call).lstrip("_")


def _called_name(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _texts(node: ast.AST) -> Iterator[str]:
    """The texts that are written out in an argument, outside of sentences; those in the values of sentences count."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            yield node.value
    elif isinstance(node, ast.Call):
        is_format = _name(node) == "format" and isinstance(node.func, ast.Attribute)
        if is_format and isinstance(node.func, ast.Attribute):
            yield from _texts(node.func.value)
        inner = [keyword.value for keyword in node.keywords] if _name(node) in SENTENCES else node.args
        for value in inner if _name(node) in SENTENCES | PASSING_ON else ():
            yield from (
                _texts(value) if isinstance(value, (ast.JoinedStr, ast.List, ast.IfExp, ast.BinOp, ast.Call)) else ()
            )
    elif isinstance(node, ast.JoinedStr):
        yield " ".join(value.value for value in node.values if isinstance(value, ast.Constant))
    elif isinstance(node, (ast.BinOp, ast.IfExp, ast.List, ast.Tuple, ast.Starred)):
        children = [node.body, node.orelse] if isinstance(node, ast.IfExp) else ast.iter_child_nodes(node)
        for child in children:
            yield from _texts(child)


@cache
def tree_of(path: Path) -> ast.AST:
    return ast.parse(source(path))


@cache
def all_functions() -> Functions:
    return Functions(tree_of(path) for path in all_modules() if REPORT not in path.as_posix())


@each("path", lambda: [path for path in all_modules() if REPORT not in path.as_posix() and SHOWS.search(source(path))])
def test_progress__line_that_is_shown__is_a_sentence(path: Path) -> None:
    found = sorted(set(lines_without_translation(tree_of(path), all_functions())))
    assert found == [], f"{path}: wrap the text of these lines in sentence(...) or Activity(...)"


@pytest.mark.parametrize(
    "code",
    [
        'say(f"reading {name}")',
        'progress.note("reading it")',
        'self._say("reading {}".format(name))',
        'click.echo(cleaned(f"kept run {run}"))',
        'say("reading it" if once else "")',
        'say(sentence("{what} done", what=f"reading {name}"))',
        'note("a " + f"reading of {name}")',
        'def words():\n    return f"reading {name}"\nsay(words())',
        'def words():\n    return f"reading {name}"\nsay(f"{number}. {states.words(applied)}: {answer}")',
        'def inner():\n    return "reading it"\ndef words():\n    return inner()\nsay(words())',
        "try:\n    read()\nexcept StoreError as error:\n    say(str(error))",
        "try:\n    read()\nexcept (OSError, StoreError) as error:\n    say(log_lines(f'x: {error}', environ))",
    ],
)
def test_lines_without_translation__text_put_together_where_it_is_shown__found(code: str) -> None:
    assert _found(code)


@pytest.mark.parametrize(
    "code",
    [
        'say(sentence("reading {name}", name=name))',
        'progress.note(Activity("reading"))',
        'say(f"{doing.shown}: {error.shown}")',
        'echo(f"$ perfgate {arguments}")',
        "say(text)",
        'def words():\n    return sentence("reading {name}", name=name)\nsay(words())',
        "try:\n    read()\nexcept StoreError as error:\n    say(error.shown)",
        "try:\n    read()\nexcept StoreError as error:\n    troubles.note(str(error))",
    ],
)
def test_lines_without_translation__sentence_or_values_alone__not_found(code: str) -> None:
    assert not _found(code)


def _found(code: str) -> list[int]:
    tree = ast.parse(code)
    return list(lines_without_translation(tree, Functions([tree])))


def test_activity__parts__make_the_same_activity_elsewhere() -> None:
    activity = Activity("tracing inputs of shape {shape}", shape="long")
    assert Activity(activity.template, **activity.values) == activity == "tracing inputs of shape long"
