"""Fetch the artifact of a CI run's measuring job by its name: `perfgate-KEY-ATTEMPT`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from perfgate.document.artifact import MAX_ARCHIVE_BYTES
from perfgate.document.message import Message, ReasonError
from perfgate.errors import DocumentError, ForgeGoneError, ForgeTooLargeError
from perfgate.judging.forge.forge import CiEvent, Forge, ForgeArtifact

# The name of the gate in a repository with only one.
DEFAULT_KEY = "default"


def key_of(key: str, testbed: str) -> str:
    """The key in the names of a testbed's artifacts; without a testbed the gate's own."""
    if testbed:
        return f"{key}-{testbed}"
    return key


def status_name(name: str) -> str:
    """The name of a gate's commit status."""
    if name == DEFAULT_KEY:
        return "perfgate"
    return f"perfgate/{name}"


def fetch_artifact(forge: Forge, event: CiEvent, key: str) -> bytes:
    """The zip of the newest attempt up to the event's own: if only this job is rerun,
    the new attempt has no artifact.

    Raises DocumentError if none is available, ForgeError if the forge does not respond.
    """
    prefix = f"perfgate-{key}-"
    artifact = newest(forge.artifacts(), prefix, event.job.run_attempt)
    if artifact is None:
        raise ReasonError(
            Message(
                "publish.artifact-not-left",
                {
                    "run": str(event.job.run_id),
                    "name": f"{prefix}{event.job.run_attempt}",
                },
            )
        )
    if artifact.expired:
        raise ReasonError(Message("publish.artifact-expired", {"name": artifact.name}))
    if artifact.bytes > MAX_ARCHIVE_BYTES:
        raise DocumentError(
            "{name} has {bytes} bytes; at most {most_bytes} are read",
            name=artifact.name,
            bytes=artifact.bytes,
            most_bytes=MAX_ARCHIVE_BYTES,
        )
    try:
        return forge.download(artifact)
    except (ForgeGoneError, ForgeTooLargeError) as error:
        raise DocumentError(
            "{name} cannot be fetched: {error}", name=artifact.name, error=error
        ) from None


def with_traces(
    artifact: Path | bytes, forge: Forge | None, event: CiEvent, key: str
) -> Iterator[Path | bytes]:
    """The artifact itself, and, only if it lacks files, the zip of traces that GitHub's
    jobs upload separately.

    The zip comes from the newest attempt. Raises DocumentError if it is too large to be
    fetched, ForgeError if the forge does not respond.
    """
    yield artifact
    newest_traces = None
    if forge:
        newest_traces = newest(
            forge.artifacts(),
            f"perfgate-{key}-",
            event.job.run_attempt,
            suffix="-traces",
        )
    if forge is None or newest_traces is None or newest_traces.expired:
        return
    if newest_traces.bytes > MAX_ARCHIVE_BYTES:
        raise DocumentError(
            "{name} has {bytes} bytes, and at most {most} are fetched; download it in a step of the job, and give its folder",
            name=newest_traces.name,
            bytes=newest_traces.bytes,
            most=MAX_ARCHIVE_BYTES,
        )
    yield forge.download(newest_traces)


def newest(
    artifacts: Iterable[ForgeArtifact], prefix: str, at_most: int, *, suffix: str = ""
) -> ForgeArtifact | None:
    """The artifact named ``prefix``, attempt, ``suffix`` with the highest attempt of at
    most ``at_most``.
    """
    name = re.compile(f"{re.escape(prefix)}([0-9]{{1,9}}){re.escape(suffix)}")
    newest_of_all = None
    rank = (0, 0)
    for artifact in artifacts:
        match = name.fullmatch(artifact.name)
        if match and rank < (int(match[1]), artifact.id) and int(match[1]) <= at_most:
            newest_of_all = artifact
            rank = (int(match[1]), artifact.id)
    return newest_of_all
