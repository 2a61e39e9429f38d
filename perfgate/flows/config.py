"""``perfgate config``: every setting with its value, its default and the origin of the
value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from perfgate.catalogue.lookup import LIMITS, METRICS
from perfgate.conductor.machine.lock import lock_path
from perfgate.conductor.workers.virtualenv import cache_folder
from perfgate.config import CONFIG_NAME, ConfigFile, load_config, report_language
from perfgate.errors import StoreError
from perfgate.flows.shared.artifacts import ARTIFACTS_VARIABLE
from perfgate.judging.store.remote import REMOTE_VARIABLE
from perfgate.judging.store.store import STORE_VARIABLE, shown_location, store_location
from perfgate.toml import tomllib

DEFAULT = "default"
OVERRULED_BY = {
    ("device",): "PERFGATE_DEVICE",
    ("report", "language"): "PERFGATE_LANG",
    ("store", "path"): STORE_VARIABLE,
    ("artifacts", "path"): ARTIFACTS_VARIABLE,
}
# Settings that may hold a password.
_LOCATIONS = (("store", "path"), ("artifacts", "path"))
# Variables without a setting in the file, each with the function that reads its value.
VARIABLES: Mapping[str, Callable[[Mapping[str, str]], object]] = {
    "PERFGATE_LOCK": lock_path,
    "PERFGATE_CACHE": cache_folder,
    REMOTE_VARIABLE: lambda environ: environ.get(REMOTE_VARIABLE, ""),
}

Keys = tuple[str, ...]


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting. ``origin`` is "default", the name of the file, or of an environment
    variable.

    ``table`` is empty at the top of the file, and "environment" for settings that only
    a variable can set. A ``value`` of None is unset. An entry of a table with names
    chosen by the project has no ``default``.
    """

    table: str
    name: str
    value: Any
    default: Any = msgspec.UNSET
    origin: str
    line: int | None = None


def list_settings(root: Path, environ: Mapping[str, str]) -> list[Setting]:
    """Every setting of the project in ``root``, those without a table first.

    Raises ConfigError for an invalid one.
    """
    config = load_config(root, environ=environ, needs_workload=False)
    report_language(None, root, environ=environ)
    text = (root / CONFIG_NAME).read_text(encoding="utf-8")
    written = _settings(
        msgspec.to_builtins(msgspec.convert(tomllib.loads(text), ConfigFile))
    )
    # The defaults that depend on the folders of the project and of the user's data.
    places: dict[Keys, Any] = {("project",): config.root.resolve().name}
    without_place = structs.replace(
        config, store=structs.replace(config.store, path="")
    )
    with suppress(StoreError):
        places["store", "path"] = store_location(
            without_place, {**environ, STORE_VARIABLE: ""}
        )
    defaults = {**_settings(msgspec.to_builtins(ConfigFile())), **places}
    lines = statement_lines(text)
    settings: list[Setting] = []
    for keys, default in defaults.items():
        value = written[keys] if keys in lines else default
        settings += _entries(keys, value, default, lines, environ)
    for name, place in VARIABLES.items():
        settings.append(
            Setting(
                table="environment",
                name=name,
                value=shown_location(str(place(environ))),
                default=str(place({**environ, name: ""})),
                origin=name if environ.get(name) else DEFAULT,
            )
        )
    return sorted(settings, key=lambda setting: bool(setting.table))


def statement_lines(text: str) -> dict[Keys, int]:
    """The first line of each value and table of a TOML text, by its key path.

    The parser itself finds the statements: one ends as soon as its lines are valid
    TOML.
    """
    lines: dict[Keys, int] = {}
    header = ""
    statement = ""
    first = 1
    for number, line in enumerate(text.splitlines(), start=1):
        statement += line + "\n"
        try:
            tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue
        whole = header + statement
        if statement.lstrip().startswith("["):
            whole = header = statement
        for keys in _names(tomllib.loads(whole)):
            lines.setdefault(keys, first)
        statement, first = "", number + 1
    return lines


def _names(table: Mapping[str, Any], above: Keys = ()) -> Iterator[Keys]:
    for key, value in table.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from _names(value, (*above, key))


def _settings(file: Mapping[str, Any]) -> dict[Keys, Any]:
    """The values of a ConfigFile by key path."""
    values: dict[Keys, Any] = {}
    for field in structs.fields(ConfigFile):
        if isinstance(field.default, msgspec.Struct):
            for name, value in file[field.name].items():
                values[field.name, name] = value
        else:
            values[field.name,] = file[field.name]
    return values


def _entries(
    keys: Keys,
    value: Any,
    default: Any,
    lines: Mapping[Keys, int],
    environ: Mapping[str, str],
) -> Iterator[Setting]:
    """A setting, or each entry of a table with names chosen by the project."""
    if default == {} and value:
        for name, entry in value.items():
            shown = entry
            if isinstance(entry, dict):
                shown = {key: of for key, of in entry.items() if of is not None}
            # The default of a limit in the checklist, or of a metric's tolerance.
            usual: Any = msgspec.UNSET
            if keys == ("limits",) and name in LIMITS:
                usual = LIMITS[name].default
            elif keys == ("gate", "tolerance") and name in METRICS:
                tolerance = METRICS[name].gate.tolerance
                if tolerance is not None:
                    usual = tolerance
            yield Setting(
                table=".".join(keys),
                name=name,
                value=shown,
                default=usual,
                origin=CONFIG_NAME,
                line=lines[(*keys, name)],
            )
        return
    variable = OVERRULED_BY.get(keys, "")
    origin, line = DEFAULT, lines.get(keys)
    if line is not None:
        origin = CONFIG_NAME
    if environ.get(variable):
        value = environ[variable]
        origin = variable
        line = None
    if keys in _LOCATIONS:
        value = shown_location(value)
    yield Setting(
        table=".".join(keys[:-1]),
        name=keys[-1],
        value=value,
        default=default,
        origin=origin,
        line=line,
    )
