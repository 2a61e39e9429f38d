"""Read the catalogue's TOML files.

An unknown, missing or mistyped entry is an error that names file and key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from perfgate.catalogue.records import (
    Advice,
    Family,
    Limit,
    Metric,
    Rule,
    Sentence,
    StepCard,
    Term,
)
from perfgate.plugins import STEPS, files_beside
from perfgate.toml import tomllib

FOLDER = Path(__file__).parent
_SECTIONS: Mapping[str, type[msgspec.Struct]] = {
    "metrics": Metric,
    "parts": Metric,
    "limits": Limit,
    "rules": Rule,
}
_Record = TypeVar("_Record", bound=msgspec.Struct)


def load_steps() -> dict[int, StepCard]:
    """Raises ValueError that names the file, the entry and its mistake, as the other
    functions here do.
    """
    sources = _read(FOLDER / "sources.toml")
    # The card of another package's step lies next to its module, which may import torch
    # and is not imported here.
    paths = [*sorted((FOLDER / "steps").glob("*.toml")), *files_beside(STEPS, ".toml")]
    cards = [load_step(path, sources) for path in paths]
    return {card.number: card for card in cards}


def load_changes() -> dict[str, Advice]:
    path = FOLDER / "changes.toml"
    return {
        name: _decode(Advice, table, f"{path.name}: [{name}]")
        for name, table in _read(path).items()
    }


def load_families(metrics: Iterable[Metric]) -> dict[str, Family]:
    path = FOLDER / "families.toml"
    tables = _read(path)
    members: dict[str, list[str]] = {name: [] for name in tables}
    for metric in metrics:
        if metric.gate.family:
            if metric.gate.family not in members:
                raise ValueError(
                    f"{metric.name}: there is no family {metric.gate.family!r} in {path.name}"
                )
            members[metric.gate.family].append(metric.name)
    return {
        name: _decode(
            Family, {**table, "metrics": members[name]}, f"{path.name}: [{name}]"
        )
        for name, table in tables.items()
    }


def load_glossary() -> dict[str, Term]:
    path = FOLDER / "glossary.toml"
    return {
        name: _decode(Term, {**table, "name": name}, f"{path.name}: [{name}]")
        for name, table in _read(path).items()
    }


def load_messages() -> dict[str, Sentence]:
    """Sentences by their code, which is the name of the file, a dot and the key."""
    sentences = {}
    for path in sorted((FOLDER / "messages").glob("*.toml")):
        for key, entry in _read(path).items():
            table = {"other": entry} if isinstance(entry, str) else entry
            sentences[f"{path.stem}.{key}"] = _decode(
                Sentence, table, f"{path.name}: {key}"
            )
    return sentences


def load_step(path: Path, sources: Mapping[str, str]) -> StepCard:
    """In a source ``{name}`` stands for the text of that name in ``sources`` or in the
    step's own ``[sources]``.
    """
    step = _read(path)
    texts = {**sources, **step.pop("sources", {})}
    for section, record in _SECTIONS.items():
        entries = []
        for name, table in step.get(section, {}).items():
            table.update(name=name, step=step.get("number"))
            entries.append(
                _decode(record, table, f'{path.name}: [{section}."{name}"]', texts)
            )
        step[section] = entries
    return _decode(StepCard, step, f"{path.name}:")


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path.name}: {error}") from error


def _decode(
    record: type[_Record],
    table: dict[str, Any],
    place: str,
    sources: Mapping[str, str] | None = None,
) -> _Record:
    try:
        if sources and "source" in table:
            table["source"] = table["source"].format_map(sources)
        return msgspec.convert(table, record)
    except KeyError as error:
        raise ValueError(
            f"{place} there is no source {error}; the names are {', '.join(sources or ())}"
        ) from error
    except msgspec.ValidationError as error:
        raise ValueError(f"{place} {error}") from error
