"""Keep what main's measuring job left: its artifact is read like anybody's, and kept where it is of this very push."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from perfgate.config import Config
from perfgate.document.artifact import read_artifact_run
from perfgate.errors import DocumentError, InconclusiveError, UsageError
from perfgate.jobs.baseline.job import Recorded, keep, refuse_failed
from perfgate.jobs.shared.artifact import DEFAULT_KEY, fetch_artifact
from perfgate.jobs.trust.main_only import refuse_foreign, refuse_off_main, trusted_event
from perfgate.judging.forge.forge import CiEvent, Forge, connect, find_token, token_variables
from perfgate.judging.forge.limits import Clock, Sleep


@dataclass(frozen=True)
class ArtifactRequest:
    """Which artifact: the folder or zip at ``path``, or the one of the gate ``key`` that the forge keeps of the event's run."""

    path: Path | None = None
    key: str = DEFAULT_KEY
    token_variable: str | None = None


def record_artifact(
    config: Config, environ: Mapping[str, str], request: ArtifactRequest, *, sleep: Sleep, clock: Clock
) -> Recorded:
    """Keep the run in an artifact of this event's pipeline.

    Raises UsageError in a job that may not write to the store, InconclusiveError for an artifact that is missing, damaged or of
    another run, MeasuringError where a part of it could not be measured.
    """
    event = trusted_event(config, environ)
    if event is None:
        raise UsageError(
            "an artifact is kept by a CI job alone, which says whose it is; elsewhere `perfgate baseline record --run FILE` "
            "keeps a run document"
        )
    forge = _connect(event, environ, request, sleep=sleep, clock=clock)
    refuse_off_main(config, environ, event, forge)
    try:
        with _artifact(request, event, forge) as path:
            run = read_artifact_run(path)
    except DocumentError as error:
        raise InconclusiveError(f"artifact: {error}; nothing is kept") from error
    refuse_foreign(run, event)
    refuse_failed(run, "the log of the measuring job")
    return keep(config, environ, run, allow_dirty=False)


def _connect(
    event: CiEvent, environ: Mapping[str, str], request: ArtifactRequest, *, sleep: Sleep, clock: Clock
) -> Forge | None:
    token = find_token(event.forge, environ, request.token_variable)
    if token is None and request.path is None:
        names = " or ".join(token_variables(event.forge, request.token_variable))
        raise UsageError(f"no token in {names} to download the artifact with; pass it on to this job")
    return connect(event, token, sleep=sleep, clock=clock) if token else None


@contextmanager
def _artifact(request: ArtifactRequest, event: CiEvent, forge: Forge | None) -> Iterator[Path]:
    """Lend the artifact as a path."""
    if request.path is not None or forge is None:
        yield request.path or Path()
        return
    data = fetch_artifact(forge, event, request.key)
    with tempfile.NamedTemporaryFile(prefix="perfgate-artifact-", suffix=".zip") as file:
        file.write(data)
        file.flush()
        yield Path(file.name)
