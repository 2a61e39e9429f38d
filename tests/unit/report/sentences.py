"""Every English sentence that reports are made of, taken from their templates and their code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from jinja2 import Environment, nodes

from perfgate.judging import report
from perfgate.judging.report.locale.sentences import Sentences
from perfgate.judging.report.section import all_sections

REPORT = Path(report.__file__).parent
TEMPLATES = REPORT / "templates"
# What a tag, a style or a link of ours says is no sentence.
_MARKUP = re.compile(r"<style>.*?</style>|<[^>]*>|\{\{.*?\}\}|`[^`]*`", re.DOTALL)
_WORD = re.compile(r"[A-Za-z]{2,}")


def all_sentences() -> set[str]:
    """Return the English sentences, with ``{name}`` in the place of values."""
    found = {str(section.title) for section in all_sections()} | {"none"}
    for template in sorted(TEMPLATES.rglob("*.j2")):
        found |= set(of_template(template))
    for module in sorted(REPORT.rglob("*.py")):
        if "locale" not in module.parts:
            found |= set(of_module(module))
    return found


def of_template(path: Path) -> Iterator[str]:
    """Yield what stands in sentence tags, the nouns that are counted and constants that are said."""
    said: list[str] = []
    environment = Environment(extensions=[Sentences], trim_blocks=True, lstrip_blocks=True)
    environment.extend(translate=lambda english: said.append(english) or english)
    tree = environment.parse(path.read_text(encoding="utf-8"))
    yield from said
    for filtered in tree.find_all(nodes.Filter):
        constants = [argument.value for argument in filtered.args if isinstance(argument, nodes.Const)]
        if filtered.name == "counted":
            yield f"{{count}} {constants[0]}"
        if filtered.name == "said" and isinstance(filtered.node, nodes.Const):
            yield filtered.node.value


def of_module(path: Path) -> Iterator[str]:
    """Yield the constants that are given to ``say``, ``phrase`` and ``counted``."""
    for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not (isinstance(call, ast.Call) and call.args):
            continue
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name in {"say", "phrase"}:
            yield from _constants(call.args[0])
        if name == "counted" and len(call.args) > 1:
            yield from (f"{{count}} {noun}" for noun in _constants(call.args[1]))


def unsaid_words(path: Path) -> list[str]:
    """Return the words of a template that stand outside of every sentence tag."""
    environment = Environment(extensions=[Sentences], trim_blocks=True, lstrip_blocks=True)
    environment.extend(translate=lambda english: "")
    tree = environment.parse(path.read_text(encoding="utf-8"))
    text = "".join(data.data for data in tree.find_all(nodes.TemplateData))
    return _WORD.findall(_MARKUP.sub(" ", text))


def _constants(expression: ast.expr) -> Iterator[str]:
    for node in ast.walk(expression):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def written_messages() -> list[str]:
    """Return as patterns what the gate and the checklist may write into documents: an f-string's values match anything."""
    package = REPORT.parent.parent
    folders = ["judging/gate", "conductor", "flows", "measuring/checklist"]
    modules = [module for folder in folders for module in sorted((package / folder).rglob("*.py"))]
    texts = {text for module in modules for text in _texts(ast.parse(module.read_text(encoding="utf-8")))}
    # What is hardly more than values would match every sentence.
    return [text for text in texts if len(_WORD.findall(text)) > 1]


def _texts(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.escape(node.value)
        if isinstance(node, ast.JoinedStr):
            yield "".join(re.escape(part.value) if isinstance(part, ast.Constant) else ".+" for part in node.values)
