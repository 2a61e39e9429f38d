"""Fetch what the measuring job of a CI run left, by its name: `perfgate-KEY-ATTEMPT`."""

from __future__ import annotations

from perfgate.document.artifact import MAX_ARCHIVE_BYTES
from perfgate.document.message import Message, ReasonError
from perfgate.errors import DocumentError, ForgeGoneError, ForgeTooLargeError
from perfgate.judging.forge.forge import CiEvent, Forge, ForgeArtifact

# The name of a gate, where a repository has only one.
DEFAULT_KEY = "default"


def fetch_artifact(forge: Forge, event: CiEvent, key: str) -> bytes:
    """The zip of the newest attempt that is not above the event's: a job that is run again alone leaves none.

    Raises DocumentError where there is none that can be had, ForgeError where the forge does not answer.
    """
    prefix = f"perfgate-{key}-"
    candidates = [
        (int(attempt), artifact.id, artifact)
        for artifact in forge.artifacts()
        if (attempt := _attempt(artifact, prefix)) is not None and int(attempt) <= event.run_attempt
    ]
    if not candidates:
        raise ReasonError(
            Message("publish.artifact-not-left", {"run": str(event.run_id), "name": f"{prefix}{event.run_attempt}"})
        )
    newest = max(candidates, key=lambda entry: entry[:2])[2]
    if newest.expired:
        raise ReasonError(Message("publish.artifact-expired", {"name": newest.name}))
    if newest.bytes > MAX_ARCHIVE_BYTES:
        raise DocumentError(f"{newest.name} has {newest.bytes} bytes; at most {MAX_ARCHIVE_BYTES} are read")
    try:
        return forge.download(newest)
    except (ForgeGoneError, ForgeTooLargeError) as error:
        raise DocumentError(f"{newest.name} cannot be had: {error}") from None


def _attempt(artifact: ForgeArtifact, prefix: str) -> str | None:
    number = artifact.name[len(prefix) :] if artifact.name.startswith(prefix) else ""
    return number if number.isascii() and number.isdecimal() and len(number) <= 9 else None
