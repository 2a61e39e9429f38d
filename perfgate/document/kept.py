"""The artifacts of one run of main, or of one check, in the artifact store: the files and their run or check."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Literal

import msgspec

from perfgate.document.decision import DecisionDocument, Verdict
from perfgate.document.files import content_sha256
from perfgate.document.records import convert_record
from perfgate.document.run import Artifact, RunDocument
from perfgate.document.strict_json import DAMAGED, parse_json, refuse

MAX_SET_BYTES = 1024 * 1024
# Logs stay with the CI job: they may hold a model's output.
KEPT_KINDS = ("trace", "flamegraph")
# The page that is drawn of a decision; no document lists it.
REPORT_PAGE = "report.html"
# A path without a character that needs escaping in a URL, and without a part that leads elsewhere.
_PLAIN_PATH = re.compile(
    r"(?!.*\.\.)(?:[A-Za-z0-9_][A-Za-z0-9._-]{0,199}/){0,3}[A-Za-z0-9_][A-Za-z0-9._-]{0,199}"
)


class ArtifactSet(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """The kept artifacts of a run of main or of a check.

    ``id`` is the run's id in the store, or made of both documents of the check. ``verdict`` and ``base`` (its commit) are
    those of a check. ``kept_at`` is the time of keeping by the clock of the job that kept it, in ISO 8601: the clock of the
    machine that measured has no influence.
    """

    schema: Literal["perfgate/artifacts"] = "perfgate/artifacts"
    schema_version: Literal[1] = 1
    id: str
    project: str
    session: str
    commit: str | None
    kept_at: str
    base: str | None = None
    verdict: Verdict | None = None
    files: list[Artifact] = []

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def file(self, path: str) -> Artifact | None:
        return next((file for file in self.files if file.path == path), None)


class KeptLink(msgspec.Struct, frozen=True, kw_only=True):
    """A kept file as a page shows it: ``address`` opens it in a browser, "" if no address is known; ``place`` is its URL."""

    path: str
    kind: str
    bytes: int
    address: str
    place: str


class KeptOfRun(msgspec.Struct, frozen=True, kw_only=True):
    """The kept files of a run, and why they cannot be read, "" if they can."""

    links: list[KeptLink] = []
    why: str = ""


def set_of_run(run: RunDocument, run_id: str, kept_at: str) -> ArtifactSet:
    """The artifacts that a run of main lists."""
    return ArtifactSet(
        id=run_id,
        project=run.project,
        session=run.session.id,
        commit=run.source.commit,
        kept_at=kept_at,
        files=_kept(run),
    )


def set_of_check(
    base: RunDocument,
    head: RunDocument,
    decision: DecisionDocument,
    project: str,
    kept_at: str,
) -> ArtifactSet:
    """The artifacts that both documents of a check list, under the folders of their sides."""
    ids = content_sha256(base) + content_sha256(head)
    return ArtifactSet(
        id=hashlib.sha256(ids.encode()).hexdigest(),
        project=project,
        session=head.session.id,
        commit=decision.sides.head.reviewed or head.source.commit,
        kept_at=kept_at,
        base=base.source.commit,
        verdict=decision.verdict,
        files=[*_below("base", _kept(base)), *_below("head", _kept(head))],
    )


def is_plain_path(path: str) -> bool:
    """Whether a path stays in its folder and needs no escaping in a URL. A document may come from a change."""
    return _PLAIN_PATH.fullmatch(path) is not None


def parse_set(data: bytes, *, name: str) -> ArtifactSet:
    """The record of kept artifacts in ``data``. Raises DocumentError for anything else."""
    try:
        artifacts = convert_record(
            parse_json(data, name=name, max_bytes=MAX_SET_BYTES), ArtifactSet
        )
    except msgspec.ValidationError as error:
        refuse(name, "$", str(error), DAMAGED)
    for file in artifacts.files:
        if not is_plain_path(file.path) or file.bytes < 0:
            refuse(name, "$.files", ascii(file.path)[:200], DAMAGED)
    return artifacts


def _below(folder: str, files: Iterable[Artifact]) -> list[Artifact]:
    return [
        msgspec.structs.replace(file, path=f"{folder}/{file.path}") for file in files
    ]


def _kept(run: RunDocument) -> list[Artifact]:
    return [file for file in run.artifacts if file.kind in KEPT_KINDS]
