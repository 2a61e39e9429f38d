"""``perfgate advise``: what to try about a run, or about the change that a check judged."""

from __future__ import annotations

from pathlib import Path

from perfgate.document.decision import Suggestion
from perfgate.document.files import read_decision, read_run
from perfgate.errors import UsageError
from perfgate.judging.advice.advise import suggestions

_RESULTS = ("decision.json", "run.json")
# Where perfgate run and check write, and where perfgate local does.
_USUAL = (Path("perfgate-out"), Path(".perfgate/local"))


def suggestions_in(path: Path | None) -> list[Suggestion]:
    """The suggestions on a run document, or those of a decision document; a folder holds one or the other.

    Without a path they are those of the newest result in the folders that perfgate writes to. Raises UsageError where there is
    none, and DocumentError for one that cannot be read.
    """
    if path is None:
        results = [folder / name for folder in _USUAL for name in _RESULTS if (folder / name).is_file()]
        if not results:
            folders = " nor ".join(map(str, _USUAL))
            raise UsageError(
                f"neither {folders} holds a result; run `perfgate run` or `perfgate local`, or name a folder"
            )
        path = max(results, key=lambda file: file.stat().st_mtime).parent
    file = next((path / name for name in _RESULTS if (path / name).is_file()), path)
    if not file.is_file():
        raise UsageError(
            f"{path} holds no run.json and no decision.json; name the folder that perfgate run or check wrote"
        )
    return read_decision(file).suggestions if file.name == "decision.json" else suggestions(read_run(file))
