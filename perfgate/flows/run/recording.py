"""The files of a recording: their list, their hashes, and an optional copy of them."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfgate.document.message import Message
from perfgate.document.run import Artifact
from perfgate.document.testbed import Testbed, fingerprint
from perfgate.errors import PerfgateError, UsageError
from perfgate.trace.analysis.summary import DeviceSummary
from perfgate.trace.model.recording import Recording

# The folder of a profiler's analysed tables; its siblings (PROF_*, FRAMEWORK) are raw
# data, many times larger, and not read.
_ANALYSED = "ASCEND_PROFILER_OUTPUT"
KEPT = "profile"
# Written by torch_npu and by msprof; in every recorded sample, the last line is
# terminated.
_KERNEL_TABLE = re.compile(r"(kernel_details|op_summary).*\.csv")
MAX_FILES = 100_000


@dataclass(frozen=True)
class RecordingFile:
    """One file of a recording, under its path inside it; ``ends_line`` is whether its
    last line is complete.
    """

    path: Path
    name: str
    bytes: int
    sha256: str
    ends_line: bool


def recording_files(path: Path) -> list[RecordingFile]:
    """The files that a recording is read from, by name. Raises PerfgateError if one
    cannot be read.
    """
    root, files = path.parent, [path]
    if not path.is_file():
        root, files = path, sorted(_files(path))
    if len(files) > MAX_FILES:
        raise UsageError(
            "{path} holds more than {max_files} files; name the folder of one recording",
            path=path,
            max_files=MAX_FILES,
        )
    described: list[RecordingFile] = []
    try:
        for file in files:
            digest = hashlib.sha256()
            size, last = 0, b""
            with file.open("rb") as stream:
                while block := stream.read(1 << 20):
                    digest.update(block)
                    size += len(block)
                    last = block[-1:]
            described.append(
                RecordingFile(
                    path=file,
                    name=file.relative_to(root).as_posix(),
                    bytes=size,
                    sha256=digest.hexdigest(),
                    ends_line=last == b"\n",
                )
            )
    except OSError as error:
        raise PerfgateError(
            "{filename}: cannot be read ({why}); check its permissions",
            filename=error.filename,
            why=error.strerror,
        ) from error
    return described


def content_hash(files: list[RecordingFile]) -> str:
    """One hash over all files and their names; for a single file, the file's own hash."""
    if len(files) == 1:
        return files[0].sha256
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.sha256}  {file.name}\n".encode())
    return digest.hexdigest()


def cut_off_tables(files: list[RecordingFile]) -> list[str]:
    """The tables of kernels with an unterminated last line: writing or copying them was
    interrupted.
    """
    return [
        file.name
        for file in files
        if _KERNEL_TABLE.fullmatch(file.path.name) and not file.ends_line
    ]


def _files(folder: Path) -> Iterator[Path]:
    analysed = folder / _ANALYSED
    if analysed.is_dir():
        yield from folder.glob("*.json")
        yield from _files(analysed)
        return
    for child in folder.iterdir():
        # A link may lead anywhere, even in a circle.
        if child.is_symlink():
            continue
        if child.is_dir():
            yield from _files(child)
        elif child.is_file():
            yield child


def keep(file: RecordingFile, out: Path, *, workload: str) -> Artifact:
    """Copy a file into the run folder and return it as an artifact.

    Raises PerfgateError if the disk is full.
    """
    target = out / KEPT / file.name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file.path, target)
    except OSError as error:
        raise PerfgateError(
            "{name} cannot be copied to {parent}: {why}; free space there, choose another --out, or leave out --keep",
            name=file.name,
            parent=target.parent,
            why=error.strerror or error,
        ) from error
    return Artifact(
        name=file.path.name,
        kind="trace",
        path=target.relative_to(out).as_posix(),
        bytes=file.bytes,
        sha256=file.sha256,
        workload=workload,
    )


# The number of a device is a matter of job placement; only its name must be equal.
_NUMBERED_DEVICE = re.compile(r"device\.[0-9]+")
# Name prefixes of host launches in CUDA's and ROCm's runtimes; any other name is taken
# for an NPU's.
_CUDA_CALLS = ("cuda", "cu", "hip")
_OF_ASCEND = ("ascend", "msprof")  # formats of recordings


def recorded_testbed(
    recording: Recording, summaries: Sequence[DeviceSummary]
) -> Testbed:
    """The testbed, with the properties that the recording holds; ``unknown`` lists the
    missing properties.
    """
    kind = device_kind(recording, summaries)
    comparable = {
        "source": "recording",
        "device.kind": kind,
        "profile.format": recording.format,
        "profile.shapes": "; ".join(summary.shape for summary in summaries),
        "profile.unit": ", ".join(sorted({summary.unit for summary in summaries})),
    }
    for name, version in sorted(recording.software.items()):
        comparable[f"software.{name}"] = version
    observed: dict[str, str] = {}
    device_names: set[str] = set()
    for name, value in sorted(recording.settings.items()):
        if _NUMBERED_DEVICE.fullmatch(name):
            device_names.add(value)
            observed[name] = value
        elif name == "export_type":
            observed[name] = value
        else:
            comparable[f"profiler.{name}"] = value
    if device_names:
        comparable["device.name"] = ", ".join(sorted(device_names))
    for name, value in sorted(recording.environment.items()):
        comparable[f"env.{name}"] = value
    for summary in summaries:
        if summary.timeline.device is not None:
            observed[f"{summary.shape} device"] = str(summary.timeline.device)
    return Testbed(
        fingerprint=fingerprint(comparable),
        device_kind=kind,
        comparable=comparable,
        observed=observed,
    )


def device_kind(recording: Recording, summaries: Sequence[DeviceSummary]) -> str:
    """``npu``, ``cuda`` or ``cpu``, by the recording's format and the launches of its
    kernels.
    """
    if recording.format.startswith(_OF_ASCEND):
        return "npu"
    if all(summary.on_host for summary in summaries):
        return "cpu"
    if recording.format == "nsys":
        return "cuda"
    for timeline in recording.timelines:
        launches = timeline.events.of_kind("runtime")
        for name in set(launches.name.tolist()):
            if launches.names[name].startswith(_CUDA_CALLS):
                return "cuda"
    return "npu"


def unknown(testbed: Testbed) -> list[Message]:
    """The properties that distinguish testbeds but are missing from the recording."""
    fields = {
        "device.name": "notes.device-name",
        "software.": "notes.software-versions",
    }
    if testbed.device_kind == "npu":
        fields |= {
            "profiler.level": "notes.profiler-level",
            "profiler.aic_metrics": "notes.ai-core-metrics",
        }
    missing: list[Message] = []
    for field, code in fields.items():
        if not any(name.startswith(field) for name in testbed.comparable):
            missing.append(Message(code))
    return missing
