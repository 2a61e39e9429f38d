"""The reference of what users import, from signatures and docstrings (Google's style: Args or Attributes, Returns, Example)."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any

import perfgate
from tests.docs.markdown import code, table

# In the order in which a newcomer meets them.
NAMES = (
    "Workload",
    "SLA",
    "Traffic",
    "operator",
    "pytest_benchmark",
    "asv_benchmark",
    "pyperf_benchmark",
    "turn",
)
_SECTION = re.compile(r"^(Attributes|Args|Returns|Example):\n((?:(?: .*)?\n)+)", re.MULTILINE)


@dataclass(frozen=True)
class Reference:
    """What the docstring of one name says."""

    name: str
    summary: str
    arguments: Mapping[str, str]
    returns: str
    example: str


def reference(name: str) -> Reference:
    documented = getattr(perfgate, name)
    text = inspect.getdoc(documented) + "\n"
    sections = {title: textwrap.dedent(body) for title, body in _SECTION.findall(text)}
    arguments = sections.get("Attributes") or sections.get("Args", "")
    return Reference(
        name,
        _SECTION.split(text)[0].strip(),
        {
            entry[0]: _one_line(entry[1])
            for entry in re.findall(r"^(\w+): (.+(?:\n .+)*)", arguments, flags=re.MULTILINE)
        },
        _one_line(sections.get("Returns", "")),
        sections["Example"].strip(),
    )


def api() -> Iterator[str]:
    """A section for each name."""
    for name in NAMES:
        documented, words = getattr(perfgate, name), reference(name)
        kind = "" if is_dataclass(documented) else "()"
        yield f"## {name}{kind}\n\n{_markdown(words.summary)}\n"
        parameters = inspect.signature(documented).parameters
        assert list(parameters) == list(words.arguments), f"{name}: the docstring names {list(words.arguments)}"
        yield table(
            ("argument", "type", "default", "meaning"),
            [
                (
                    code(str(one).partition(":")[0]),
                    _type(one.annotation),
                    _default(one),
                    _markdown(words.arguments[one.name]),
                )
                for one in parameters.values()
            ],
        )
        if words.returns:
            yield f"Returns: {_markdown(words.returns)}\n"
        yield f"```python\n{program(words)}\n```\n"


def program(words: Reference) -> str:
    """The example with the import of what it uses, after those that it has itself."""
    names = ", ".join(name for name in NAMES if re.search(rf"\b{name}\(", words.example))
    imports = re.match(r"(?:(?:import|from) .+\n)*", words.example)
    assert imports is not None
    blank = "\n" if imports[0] else ""
    rest = words.example[imports.end() :].lstrip("\n")
    lines = "\n\n" if rest.startswith("def ") else "\n"
    return f"{imports[0]}{blank}from perfgate import {names}\n{lines}{rest}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _markdown(text: str) -> str:
    return text.replace("``", "`")


def _type(annotation: str) -> str:
    return " or ".join(code(part) for part in annotation.replace("collections.abc.", "").split(" | "))


def _default(parameter: inspect.Parameter) -> str:
    default: Any = parameter.default
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return "none"
    if default is inspect.Parameter.empty:
        return "required"
    if repr(default) == "<factory>":
        factory: Callable[[], Any] = _factory(parameter.name)
        default = factory()
    if is_dataclass(default):
        return code(f"{type(default).__name__}()")
    return code(repr(default))


def _factory(name: str) -> Callable[[], Any]:
    factory = perfgate.Workload.__dataclass_fields__[name].default_factory
    assert callable(factory)
    return factory
