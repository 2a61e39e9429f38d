"""Output for GitHub's runner: summary, outputs, annotations (docs.github.com, "Workflow
commands for GitHub Actions").

Other hosts that run such CI steps (Gitea, Forgejo) read the same files and lines.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from perfgate.errors import UsageError

SUMMARY_VARIABLE, OUTPUT_VARIABLE = "GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"
# A larger summary is refused as a whole.
MAX_SUMMARY_BYTES = 1024 * 1024
# Per level and CI step; further annotations are dropped silently.
MAX_ANNOTATIONS = 10


def log_lines(text: str, environ: Mapping[str, str]) -> str:
    """Wrap a text that may contain foreign input, so that the runner executes none of
    it as a command.

    GitHub's runner executes lines that begin with ``::``, and ``##[`` anywhere
    (actions/runner, ActionCommand.cs), until stop-commands turns this off
    (docs.github.com, "Workflow commands for GitHub Actions"). The token that turns it
    on again is random, so that the author of the text cannot know it.
    """
    if environ.get("GITHUB_ACTIONS") != "true":
        return text
    word = secrets.token_hex(16)
    return f"::stop-commands::{word}\n{text.rstrip()}\n::{word}::\n"


def summary_path(environ: Mapping[str, str]) -> Path | None:
    """The file for the Markdown summary on the job's page; None on other hosts."""
    path = environ.get(SUMMARY_VARIABLE, "")
    if path:
        return Path(path)
    return None


def outputs_path(environ: Mapping[str, str]) -> Path | None:
    """The file for the CI step's outputs; None on other hosts."""
    path = environ.get(OUTPUT_VARIABLE, "")
    if path:
        return Path(path)
    return None


def append_to(path: Path, text: str, variable: str) -> None:
    """Append to the runner's file named in ``variable``.

    Raises UsageError if it cannot be written.
    """
    try:
        with path.open("a", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(
            "{path} ({variable}) cannot be written: {error}",
            path=path,
            variable=variable,
            error=error,
        ) from error


def output_lines(values: Mapping[str, str]) -> str:
    """Outputs in the file's format: each between random delimiters, so that no value
    can inject another output.
    """
    lines = []
    for name, value in values.items():
        delimiter = f"perfgate_{secrets.token_hex(16)}"
        while delimiter in value:
            delimiter = f"perfgate_{secrets.token_hex(16)}"
        lines.append(f"{name}<<{delimiter}\n{value}\n{delimiter}\n")
    return "".join(lines)


def annotation_command(
    level: Literal["error", "warning"],
    title: str,
    message: str,
    place: tuple[str, int] | None = None,
) -> str:
    """The line that annotates a place (a path from the repository's root, and a line),
    or the job.
    """
    properties = {"title": title}
    if place is not None:
        properties = {"file": place[0], "line": str(place[1]), **properties}
    escaped = {
        name: _data(value).replace(":", "%3A").replace(",", "%2C")
        for name, value in properties.items()
    }
    words = ",".join(f"{name}={value}" for name, value in escaped.items())
    return f"::{level} {words}::{_data(message)}"


def _data(text: str) -> str:
    """Escape a command's text as the runner unescapes it (actions/toolkit,
    packages/core/src/command.ts).
    """
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
