"""The parts of a run document common to all measuring flows, and its assembly."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from perfgate.conductor.sides.checklist.checklist import Findings
from perfgate.conductor.workers.cleanup import remove_unsafe_entries, unsafe_entries
from perfgate.conductor.workers.environment import in_ci, token_notes
from perfgate.config import Config
from perfgate.document.message import Message
from perfgate.document.run import (
    Artifact,
    CiContext,
    MeasuredPairs,
    RunDocument,
    Session,
    Side,
    Source,
)
from perfgate.document.testbed import Testbed
from perfgate.errors import UsageError
from perfgate.system.logs import cut_log, one_line, read_log
from perfgate.version import __version__

FLAME_PAGE = "flame.html"
# The subfolders written in the output folder.
_FOLDERS = ("base", "head", "logs", "base/logs", "head/logs")


def now() -> str:
    """The time in UTC, ISO 8601."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def start_session(
    command: str, seed: int, ci: CiContext | None, *, queued: float | None = None
) -> Session:
    """The session that starts now, after ``queued`` seconds in line; ``finished_at`` is
    filled in at the end.
    """
    return Session(
        id=secrets.token_hex(8),
        started_at=now(),
        finished_at="",
        seed=seed,
        command=command,
        ci=ci,
        queued=queued,
    )


def prepare_out(out: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """Create the output folder before anything is measured, so that a wrong path fails
    at once.

    Raises UsageError for a link, by which a change could make us write elsewhere, and
    for a folder that would carry a clone's .git, which may hold credentials, into the
    uploaded artifact.
    """
    folders = [out / name for name in _FOLDERS]
    for path in (out, *folders):
        if path.is_symlink():
            raise UsageError(
                "the output folder must not be a link, nor hold one: {links}; remove it, or choose another with --out",
                links=path,
            )
    if (out / ".git").exists() or ".git" in out.absolute().parts:
        raise UsageError(
            "the output folder {out} holds a clone's .git, which must not be uploaded; choose another with --out",
            out=out,
        )
    for path in folders:
        if path.exists() and not path.is_dir():
            raise UsageError(
                "{in_the_way} is not a folder, and results are written in it; remove it, or choose another with --out",
                in_the_way=path,
            )
    # In CI the folder is uploaded; elsewhere it may be any folder of the user's, with
    # links of the user's own.
    if in_ci(environ) and (entries := unsafe_entries(out)):
        raise UsageError(
            "the output folder must not hold links that lead out of it, a .git, or anything but regular files: "
            "{entries}; choose another with --out",
            entries=entries[0],
        )
    try:
        is_new = not out.exists()
        out.mkdir(parents=True, exist_ok=True)
        if is_new:
            # Our output is not part of the project: `perfgate local` must not measure
            # it as an uncommitted change.
            (out / ".gitignore").write_text("*\n")
        probe = out / f".perfgate-{secrets.token_hex(4)}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UsageError(
            "the output folder {out} cannot be written ({why}); choose another with --out",
            out=out,
            why=error.strerror,
        ) from error
    return out.resolve()


def remove_results(out: Path, names: Iterable[str]) -> None:
    """Remove the results of an earlier run in the same folder: if this run fails, they
    must not look like its own.
    """
    for name in names:
        _remove(out / name)


def remove_traces(folder: Path, workloads: Iterable[str]) -> None:
    """Remove the traces and the flame graph of an earlier run: a step would mistake an
    old trace for its own.
    """
    for name in workloads:
        for trace in folder.glob(f"trace-{name}-*"):
            if trace.is_file():
                _remove(trace)
    _remove(folder / FLAME_PAGE)


def _remove(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(
            "{file} is in the way of the results ({why}); remove it, or choose another folder with --out",
            file=file,
            why=error.strerror,
        ) from error


def assemble_run(
    config: Config,
    *,
    session: Session,
    source: Source,
    testbed: Testbed,
    findings: list[Findings],
    folder: Path,
    side: Side | None = None,
    pairs: MeasuredPairs | None = None,
    notes: Iterable[Message] = (),
) -> RunDocument:
    """Make the run document from the measured findings; non-empty logs in ``folder``
    are kept as artifacts.
    """
    document = RunDocument(
        perfgate_version=__version__,
        side=side,
        project=config.project,
        session=session,
        source=source,
        testbed=testbed,
        workloads=[each.workload for each in findings],
        pairs=pairs or MeasuredPairs(),
    )
    # Times of a device in bad health are doubtful. Other processes are left to the
    # doctor: npu-smi in a container may list our own under another number.
    health = testbed.observed.get("device.health", "OK")
    if health.upper() != "OK":
        document.warnings.append(
            Message(
                "notes.device-health", {"kind": testbed.device_kind, "health": health}
            )
        )
    for each in findings:
        if "not_checked" in [check.status for check in each.correctness]:
            document.warnings.append(
                Message("notes.no-check", {"workload": each.workload.name})
            )
    checklist = document.checklist
    for each in findings:
        checklist.steps.extend(each.steps)
        checklist.correctness.extend(each.correctness)
        checklist.counters.extend(each.counters)
        checklist.operators.extend(each.operators)
        checklist.accounts.extend(each.accounts)
        document.artifacts.extend(each.artifacts)
        document.warnings.extend(each.warnings)
    document.artifacts.extend(log_artifacts(folder))
    document.warnings.extend(notes)
    return document


def job_notes(environ: Mapping[str, str], out: Path) -> list[Message]:
    """Notes on this job for its document; in CI, files that must not be uploaded are
    removed from ``out``.
    """
    notes = list(token_notes(environ))
    if in_ci(environ) and (removed := remove_unsafe_entries(out)):
        notes.append(
            Message(
                "notes.outputs-removed",
                {"names": [one_line(name) for name in removed[:5]]},
            )
        )
    return notes


def log_artifacts(folder: Path) -> list[Artifact]:
    artifacts = []
    for log in sorted((folder / "logs").glob("*.log")):
        cut_log(log)
        if data := read_log(log):
            artifacts.append(
                artifact_of(log, data, "log", str(log.relative_to(folder)))
            )
    return artifacts


def artifact_of(
    file: Path,
    data: bytes,
    kind: Literal["trace", "log", "flamegraph"],
    path: str | None = None,
    workload: str | None = None,
) -> Artifact:
    """The record of a file of a run folder; ``path`` is relative to that folder, by
    default the file's name.
    """
    return Artifact(
        name=file.name,
        kind=kind,
        path=path or file.name,
        bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        workload=workload,
    )


def ci_context(environ: Mapping[str, str]) -> CiContext | None:
    """The CI job we run in, None outside one."""
    from perfgate.judging.forge.detect import detect

    event = detect(environ)
    return event.context() if event else None
