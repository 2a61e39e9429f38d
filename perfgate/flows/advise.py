"""``perfgate advise``: suggestions for a run, or for the change that a check judged."""

from __future__ import annotations

from pathlib import Path

from perfgate.document.decision import Suggestion
from perfgate.document.files import read_decision, read_run
from perfgate.errors import UsageError
from perfgate.flows.shared.results import USUAL_FOLDERS, newest_result
from perfgate.judging.advice.advise import suggestions

_RESULTS = ("decision.json", "run.json")


def suggestions_in(path: Path | None) -> list[Suggestion]:
    """The suggestions on a run document, or in a decision document; a folder holds
    either.

    Without a path, the newest result in the folders that perfgate writes to is read.
    Raises UsageError if there is none, and DocumentError for one that cannot be read.
    """
    if path is None:
        newest = newest_result(_RESULTS)
        if newest is None:
            folders = " nor ".join(map(str, USUAL_FOLDERS))
            raise UsageError(
                "neither {folders} holds a result; run `perfgate run` or `perfgate local`, or name a folder",
                folders=folders,
            )
        path = newest.parent
    file = next((path / name for name in _RESULTS if (path / name).is_file()), path)
    if not file.is_file():
        raise UsageError(
            "{path} holds no run.json and no decision.json; name the folder that perfgate run or check wrote",
            path=path,
        )
    if file.name == "decision.json":
        return read_decision(file).explained.suggestions
    return suggestions(read_run(file))
