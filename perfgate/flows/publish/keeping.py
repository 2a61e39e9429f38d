"""Keep the traces, flame graph and report page of a judged check in the artifact store; the comment links their addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perfgate.document.decision import DecisionDocument
from perfgate.document.kept import set_of_check
from perfgate.errors import ConfigError, PerfgateError, StoreRefusedError
from perfgate.flows.publish.artifacts import ReadArtifact
from perfgate.flows.publish.trusted import TargetForge, TrustedInputs
from perfgate.flows.shared.artifacts import keep_artifacts, open_artifacts
from perfgate.flows.shared.ci_artifact import key_of, with_traces
from perfgate.flows.shared.doors import Doors
from perfgate.judging.forge.runner import log_lines
from perfgate.judging.store.artifacts import ArtifactStore, Sending
from perfgate.locale import sentence

# Seconds after which no other file is sent: CI ends the job after 15 minutes, and the comment is not posted yet.
MOST_SECONDS = 300


@dataclass(frozen=True)
class CheckKeeper:
    """Keeps the checks of one publication. No error of it reaches the judgement: the verdict stands without kept files."""

    store: ArtifactStore
    project: str
    key: str
    target: TargetForge
    doors: Doors

    def keep(
        self, decision: DecisionDocument, artifact: ReadArtifact, page: str
    ) -> Mapping[str, str]:
        """Keep what the judged documents list, and the report page; the address of every kept file that has one, by path."""
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
            self._say(
                sentence("The artifacts were not kept: {error}", error=error.shown)
            )
            return {}
        for why in outcome.left_out:
            self._say(sentence("An artifact was not kept: {why}", why=why))
        self._say(
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
        """Raises StoreRefusedError before the next file once the time is over: the comment must not wait for ever."""
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

    def _say(self, text: str) -> None:
        self.doors.say(log_lines(text, self.doors.environ))


def open_keeper(trusted: TrustedInputs, key: str, doors: Doors) -> CheckKeeper | None:
    """The keeper of a gate's checks; None if the project keeps no artifacts, or the job does not post."""
    config = trusted.settings.config
    if config is None or trusted.target is None:
        return None
    try:
        store = open_artifacts(config, doors.environ)
    except ConfigError:
        return None  # judging opens them again and posts the mistake
    if store is not None:
        return CheckKeeper(store, config.project, key, trusted.target, doors)
    return None
