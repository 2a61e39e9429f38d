"""The artifacts of one runner or of a matrix: which testbeds are expected, and what each of them left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from perfgate.config import MOST_TESTBEDS, TESTBED_NAME, Config
from perfgate.document.artifact import CheckDocuments
from perfgate.document.message import Message, ReasonError
from perfgate.errors import UsageError
from perfgate.flows.publish.artifact import ReadArtifact, read_artifact

# The kind of device of each expected testbed by name, None if perfgate.toml does not have it.
Testbeds = Mapping[str, str | None]


def expected_testbeds(config: Config | None, named: tuple[str, ...]) -> Testbeds:
    """The expected testbeds; empty for a gate of one runner.

    ``config`` is that of the base or of the default branch, so a change cannot take a testbed away. Those ``named`` in the
    call, which a CI file of the change may have written, only add to them.
    """
    for name in named:
        if not TESTBED_NAME.fullmatch(name):
            raise UsageError(
                "--testbed {name!r} must be letters, digits, '_', '-' or '.', and not 'judged', e.g. --testbed 910b",
                name=name,
            )
    written: Testbeds = config.testbeds if config else {}
    testbeds = {**dict.fromkeys((*written, *named)), **written}
    if len(testbeds) > MOST_TESTBEDS:
        raise UsageError(
            "{count} testbeds are expected, and one comment has room for {most}",
            count=len(testbeds),
            most=MOST_TESTBEDS,
        )
    return testbeds


def check_below(folder: Path, testbed: str) -> Path:
    """The check of a testbed in a folder with several, as ``NAME/`` or ``NAME.zip``; without a name the folder itself."""
    archive = folder / f"{testbed}.zip"
    return archive if testbed and archive.is_file() else folder / testbed


def read_artifacts(
    testbeds: Testbeds, source: Callable[[str], Path | bytes], *, cancelled: bool = False
) -> tuple[ReadArtifact, ...]:
    """The artifact of every testbed; ``source`` fetches it by the testbed's name, which is "" in a gate of one runner.

    ``cancelled`` is whether a measuring job was cancelled: the artifacts of the others are still judged.
    """
    without = ReadArtifact(refusal=ReasonError(Message("publish.job-cancelled")))
    if not testbeds:
        return (without if cancelled else read_artifact(partial(source, "")),)
    read = {name: read_artifact(partial(source, name)) for name in testbeds}
    if cancelled:
        read = {name: artifact if artifact.documents else without for name, artifact in read.items()}
    sessions: Counter[str] = Counter()
    for artifact in read.values():
        sessions.update(_sessions(artifact.documents))
    named = [artifact._replace(testbed=name, device=testbeds[name]) for name, artifact in read.items()]
    return tuple(_refused(artifact, sessions) for artifact in named)


def _refused(artifact: ReadArtifact, sessions: Counter[str]) -> ReadArtifact:
    """The artifact, without its documents if they are not of this testbed alone."""
    documents, device = artifact.documents, artifact.device
    if documents is None:
        return artifact
    kinds = sorted({run.testbed.device_kind for run in documents} - {device})
    if device is not None and kinds:
        why = Message("publish.other-device", {"found": kinds[0], "wanted": device})
    elif any(sessions[session] > 1 for session in _sessions(documents)):
        # One of them is a copy; which of them cannot be known.
        why = Message("publish.measured-once")
    else:
        return artifact
    return artifact._replace(documents=None, refusal=ReasonError(why))


def _sessions(documents: CheckDocuments | None) -> set[str]:
    if documents is None:
        return set()
    sessions: set[str] = set()
    for run in documents:
        sessions.add(run.session.id)
        sessions.update(session.id for session in run.earlier_sessions)
    return sessions
