"""The files that ``perfgate init`` writes: from the templates of ``perfgate/starter``, all of them or none."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from perfgate.errors import UsageError


def render_starter(template: str, values: Mapping[str, object]) -> str:
    """Return the text of a file; the filters ``toml``, ``yaml`` and ``shell`` quote a value for where it stands."""
    environment = Environment(
        loader=PackageLoader("perfgate", "starter"),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - TOML, YAML and shell; the filters below quote for each
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["shell"] = shlex.quote
    environment.filters["toml"] = lambda value: json.dumps(value, ensure_ascii=False)
    environment.filters["yaml"] = _yaml
    return environment.get_template(template).render(values)


def _yaml(value: object) -> str:
    """Return a value as YAML of one line. In single quotes nothing but the quote itself is special."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_yaml(entry)}" for name, entry in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_yaml(entry) for entry in value) + "]"
    return "'" + str(value).replace("'", "''") + "'"


def write_all(root: Path, files: Mapping[str, str]) -> None:
    """Write every file, or take away again what was written. Raises UsageError where one cannot be."""
    made: list[Path] = []
    try:
        for name, text in files.items():
            path = root / name
            missing = [folder for folder in path.parents if not folder.exists()]
            for folder in reversed(missing):
                folder.mkdir()
                made.append(folder)
            with path.open("x", encoding="utf-8") as file:  # never through a link, never over a file
                made.append(path)
                file.write(text)
    except BaseException as error:
        for path in reversed(made):
            with suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()
        if isinstance(error, OSError):
            raise UsageError(f"{error.filename} cannot be written ({error.strerror}); nothing was kept") from error
        raise
