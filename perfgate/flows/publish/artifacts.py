"""The artifacts that the measuring jobs left, one check or one for each testbed.

They are read here, and kept in the artifact store once they are judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from perfgate.config import MOST_TESTBEDS, TESTBED_NAME, Config
from perfgate.document.artifact import CheckDocuments, read_check
from perfgate.document.decision import DecisionDocument
from perfgate.document.kept import set_of_check
from perfgate.document.message import Message, ReasonError
from perfgate.errors import (
    ConfigError,
    DocumentError,
    PerfgateError,
    StoreRefusedError,
    UsageError,
)
from perfgate.flows.publish.trusted import TargetForge, TrustedInputs
from perfgate.flows.shared.artifacts import keep_artifacts, open_artifacts
from perfgate.flows.shared.ci_artifact import fetch_artifact, key_of, with_traces
from perfgate.flows.shared.doors import Doors
from perfgate.judging.store.artifacts import ArtifactStore, Sending
from perfgate.locale import sentence

# Conclusions of a measuring job that did not finish. GitHub cancels a job that exceeds
# its `timeout-minutes`.
CANCELLED = ("cancelled", "timed_out")


class ReadArtifact(NamedTuple):
    """The documents of an artifact, or the error of reading it, which judging raises.

    In a matrix, ``testbed`` is the name of the runner that measured, and ``device`` the
    kind of its device by perfgate.toml. ``source`` is the folder or zip that was read,
    for the other files that it holds.
    """

    documents: CheckDocuments | None = None
    refusal: Exception | None = None
    testbed: str = ""
    device: str | None = None
    source: Path | bytes | None = None

    def judged_documents(self) -> CheckDocuments:
        if self.documents is None:
            raise self.refusal or DocumentError("there is none")
        return self.documents


def read_artifacts(
    artifact: Path | None, trusted: TrustedInputs, key: str, testbeds: Sequence[str]
) -> Sequence[ReadArtifact]:
    """The artifact of every expected testbed, or of the only runner: from a path, else
    as the event's run uploaded it.

    If a measuring job was cancelled, the artifacts of the others are still judged.
    """
    expected = _expected_testbeds(trusted.config, testbeds)
    target = trusted.target
    if artifact is None and target is None:
        raise UsageError(
            "an artifact is downloaded in a CI job that has a token; give a folder or zip here"
        )
    cancelled = ReasonError(Message("publish.job-cancelled"))
    is_cancelled = target is not None and target.event.job.measured in CANCELLED
    if is_cancelled and not expected:
        return [ReadArtifact(refusal=cancelled)]
    artifacts: list[ReadArtifact] = []
    for testbed in expected or ("",):
        read = _read_artifact(artifact, target, key, testbed)._replace(
            testbed=testbed, device=expected.get(testbed)
        )
        if is_cancelled and read.documents is None:
            read = read._replace(refusal=cancelled)
        artifacts.append(read)
    if not expected:
        return artifacts
    sessions: Counter[str] = Counter()
    for read in artifacts:
        sessions.update(_sessions(read.documents))
    return [_refused(read, sessions) for read in artifacts]


def measured_change(artifacts: Sequence[ReadArtifact]) -> int | None:
    """The change request that the first artifact with documents was measured for."""
    for artifact in artifacts:
        if artifact.documents is not None:
            context = artifact.documents.head.session.ci
            return context.change_request if context else None
    return None


def _expected_testbeds(
    config: Config | None, names: Sequence[str]
) -> Mapping[str, str | None]:
    """The kind of device of each expected testbed, None if perfgate.toml lacks the
    testbed; empty for a gate of one runner.

    ``config`` comes from the base or the default branch, so a change cannot take a
    testbed away. The ``names`` in the call, which a CI file of the change may have
    written, only add to them.
    """
    for name in names:
        if not TESTBED_NAME.fullmatch(name):
            raise UsageError(
                "--testbed {name!r} must be letters, digits, '_', '-' or '.', and not 'judged', e.g. --testbed 910b",
                name=name,
            )
    testbeds: dict[str, str | None] = {}
    if config:
        testbeds.update(config.testbeds)
    for name in names:
        testbeds.setdefault(name, None)
    if len(testbeds) > MOST_TESTBEDS:
        raise UsageError(
            "{count} testbeds are expected, and one comment has room for {most}",
            count=len(testbeds),
            most=MOST_TESTBEDS,
        )
    return testbeds


def _read_artifact(
    artifact: Path | None, target: TargetForge | None, key: str, testbed: str
) -> ReadArtifact:
    """The check of a testbed, "" for the only runner; in a folder with several it is
    ``NAME/`` or ``NAME.zip``.
    """
    try:
        if artifact is None:
            assert target is not None, (
                "an artifact without a path is fetched from a forge"
            )
            source: Path | bytes = fetch_artifact(
                target.forge, target.event, key_of(key, testbed)
            )
        else:
            archive = artifact / f"{testbed}.zip"
            is_archive = testbed and archive.is_file()
            source = archive if is_archive else artifact / testbed
        return ReadArtifact(read_check(source), source=source)
    except Exception as error:  # noqa: BLE001 - raised by the judging function
        return ReadArtifact(refusal=error)


def _refused(artifact: ReadArtifact, sessions: Counter[str]) -> ReadArtifact:
    """The artifact, without its documents if they are not of this testbed alone."""
    documents, device = artifact.documents, artifact.device
    if documents is None:
        return artifact
    why = None
    # One of two testbeds with the same session is a copy; which of them cannot be
    # known.
    if any(sessions[session] > 1 for session in _sessions(documents)):
        why = Message("publish.measured-once")
    other_kinds = sorted({run.testbed.device_kind for run in documents} - {device})
    if device is not None and other_kinds:
        why = Message(
            "publish.other-device", {"found": other_kinds[0], "wanted": device}
        )
    if why is None:
        return artifact
    return artifact._replace(documents=None, refusal=ReasonError(why))


def _sessions(documents: CheckDocuments | None) -> set[str]:
    sessions: set[str] = set()
    for run in documents or ():
        sessions.add(run.session.id)
        sessions.update(session.id for session in run.session.earlier)
    return sessions


# Seconds after which no other file is sent: CI ends the job after 15 minutes, and the
# comment is not posted yet.
MOST_SECONDS = 300


@dataclass(frozen=True)
class CheckKeeper:
    """Keeps the checks of one publication.

    No error of it reaches the judgement: the verdict stands without kept files.
    """

    store: ArtifactStore
    project: str
    key: str
    target: TargetForge
    doors: Doors

    def keep(
        self, decision: DecisionDocument, artifact: ReadArtifact, page: str
    ) -> Mapping[str, str]:
        """Keep what the judged documents list, and the report page; the address of
        every kept file that has one, by path.
        """
        documents = artifact.judged_documents()
        artifacts = set_of_check(
            documents.base, documents.head, decision, self.project, self.doors.now()
        )
        assert artifact.source is not None, "it has been read"
        key = key_of(self.key, artifact.testbed)
        sources = with_traces(
            artifact.source, self.target.forge, self.target.event, key
        )
        try:
            outcome = keep_artifacts(
                self.store, artifacts, sources, self._in_time(), page=page
            )
        except PerfgateError as error:
            self.doors.say_foreign(
                sentence("The artifacts were not kept: {error}", error=error.shown)
            )
            return {}
        for why in outcome.left_out:
            self.doors.say_foreign(sentence("An artifact was not kept: {why}", why=why))
        self.doors.say_foreign(
            sentence(
                "Artifacts kept in {place}: {sent} sent, {there} there already.",
                place=outcome.place,
                sent=outcome.sent,
                there=outcome.there,
            )
        )
        return {
            link.path: link.address
            for link in self.store.links(outcome.artifacts)
            if link.address
        }

    def _in_time(self) -> Sending:
        """Raises StoreRefusedError before the next file once the time is over: the
        comment must not wait for ever.
        """
        ends = self.doors.clock() + MOST_SECONDS

        def sending(_: str, number: int, files: int) -> None:
            if self.doors.clock() > ends:
                raise StoreRefusedError(
                    "{place} took longer than {seconds} s for {sent} of {files} files; a repeated job sends the others",
                    place=self.store.name,
                    seconds=MOST_SECONDS,
                    sent=number - 1,
                    files=files,
                )

        return sending


def open_keeper(trusted: TrustedInputs, key: str, doors: Doors) -> CheckKeeper | None:
    """The keeper of a gate's checks; None if the project keeps no artifacts, or the job
    does not post.
    """
    config = trusted.config
    if config is None or trusted.target is None:
        return None
    try:
        store = open_artifacts(config, doors.environ)
    except ConfigError:
        return None  # judging opens them again and posts the mistake
    if store is not None:
        return CheckKeeper(store, config.project, key, trusted.target, doors)
    return None
