"""``perfgate advise``: what to try about a run, or about the change that a check judged."""

from __future__ import annotations

from pathlib import Path

from perfgate.document.decision import Suggestion
from perfgate.document.files import read_decision, read_run
from perfgate.errors import UsageError
from perfgate.judging.advice.advise import suggestions


def suggestions_in(path: Path) -> list[Suggestion]:
    """The suggestions on a run document, or those of a decision document; a folder holds one or the other.

    Raises UsageError where there is none, and DocumentError for one that cannot be read.
    """
    file = next((path / name for name in ("decision.json", "run.json") if (path / name).is_file()), path)
    if not file.is_file():
        raise UsageError(
            f"{path} holds no run.json and no decision.json; name the folder that perfgate run or check wrote"
        )
    return read_decision(file).suggestions if file.name == "decision.json" else suggestions(read_run(file))
