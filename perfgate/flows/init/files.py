"""The text of the files that `perfgate init` writes, and writing all of them or none."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from perfgate.errors import UsageError

# A plain YAML scalar that needs no quotes: it begins with a letter and is not one of
# the words that YAML interprets.
_PLAIN = re.compile(r"[A-Za-z](?:[\w+./@:=-]*[\w/])?")
_YAML_WORDS = {"true", "false", "yes", "no", "on", "off", "y", "n", "null"}


def render_starter(template: str, values: Mapping[str, object]) -> str:
    """Render the text of a file; the filters ``toml``, ``yaml`` and ``shell`` quote a
    value for its context.
    """
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
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(_yaml(entry) for entry in value) + "]"
    text = str(value)
    if _PLAIN.fullmatch(text) and text.lower() not in _YAML_WORDS:
        return text
    return "'" + text.replace("'", "''") + "'"


@contextmanager
def written_files(root: Path, files: Mapping[str, str]) -> Iterator[None]:
    """Write every file, and remove all of them if the context raises.

    Raises UsageError if one cannot be written.
    """
    created: list[Path] = []
    try:
        for name, text in files.items():
            path = root / name
            missing = [folder for folder in path.parents if not folder.exists()]
            try:
                for folder in reversed(missing):
                    folder.mkdir()
                    created.append(folder)
                # Never through a link, never over a file.
                with path.open("x", encoding="utf-8") as file:
                    created.append(path)
                    file.write(text)
            except OSError as error:
                raise UsageError(
                    "{filename} cannot be written ({why}); nothing was kept",
                    filename=error.filename,
                    why=error.strerror,
                ) from error
        yield
    except BaseException:
        for path in reversed(created):
            with suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()
        raise
