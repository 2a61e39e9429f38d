"""The exit code of a command: compared with an unexpected one, it tells what the command printed and what failed in it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

_DOCUMENTS = ("run.json", "decision.json")
# The parts of a decision that give a reason; an error in any part of a run is one.
_REASONS = ("verdict", "reasons", "failures", "invalid", "missing", "testbed_differences")


class ExitCode(int):
    """An exit code with the command that ended with it; equal to the number."""

    _done: subprocess.CompletedProcess[str]
    _folder: Path
    _started: float

    @classmethod
    def of(cls, done: subprocess.CompletedProcess[str], folder: Path, started: float) -> ExitCode:
        """The exit code of a command that ran in ``folder`` from ``started`` on, in seconds since the epoch."""
        code = cls(done.returncode)
        code._done, code._folder, code._started = done, folder, started
        return code

    def explanation(self) -> str:
        """The command, its output, and the reasons in the documents that it wrote."""
        done = self._done
        lines = [f"{' '.join(done.args)}: exit code {done.returncode}"]
        lines += ["--- stdout", done.stdout, "--- stderr", done.stderr]
        for path in self._written(done.args):
            lines += [f"--- {path}", _reasons(path)]
        return "\n".join(lines) + "\n"

    def _written(self, arguments: Sequence[str]) -> list[Path]:
        named = {self._folder / argument for argument in arguments if len(argument) < 255}
        folders = [self._folder, *(folder for folder in named if folder.is_dir())]
        found = {path.resolve() for folder in folders for name in _DOCUMENTS for path in folder.rglob(name)}
        return sorted(path for path in found if path.stat().st_mtime >= self._started - 1)


def _reasons(path: Path) -> str:
    try:
        document = json.loads(path.read_bytes())
    except ValueError as error:
        return f"no JSON: {error}"
    shown = {name: document[name] for name in _REASONS if document.get(name)} if isinstance(document, dict) else {}
    return json.dumps(shown or list(_errors(document)), indent=1, ensure_ascii=False)


def _errors(part: Any) -> Iterator[Any]:
    """Yield every part of a document that holds an error."""
    if isinstance(part, list):
        for entry in part:
            yield from _errors(entry)
    elif isinstance(part, dict):
        if part.get("error") or part.get("status") == "error":
            yield part
        else:
            yield from _errors(list(part.values()))
