"""Record with ``torch_npu.profiler``, have the recording analysed in a fresh process,
and keep it as one file.

torch_npu prints errors, does not raise, exits with 0 and writes ``analyse.done`` even
if results are missing (2.13 without msprof on PATH), so only the files it left count.
"""

from __future__ import annotations

import inspect
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from perfgate.document.message import Message, UnmeasuredError
from perfgate.measuring.devices.device import Call
from perfgate.trace.model.events import CALL

# An analysis takes 1.5 s (a few hundred kernels, two busy cores), and msprof is known
# for minutes over long recordings.
ANALYSIS_SECONDS = 240.0
SECONDS_PER_RECORDING = 15.0
# The analysis polls every 0.1 s for msprof's files, and gives up on every table if its
# other tasks end within that tenth (torch_npu 2.13, ConcurrentTasksManager.__listen),
# as they may for a short recording.
ATTEMPTS = 2
RESULTS = "ASCEND_PROFILER_OUTPUT"
# Files of Level1 with kernels; op_statistic.csv is missing at Level0, the rest without
# msprof.
_TABLES = ("kernel_details.csv", "op_statistic.csv", "step_trace_time.csv")
_TIMELINE = "trace_view.json"

# The program that analyses recordings: this module.
_ANALYSIS = __name__
_TAIL_BYTES = 2_000


def record(
    call: Call,
    *,
    calls: int,
    folder: Path,
    synchronize: Callable[[], None],
) -> Path:
    """Profile ``calls`` calls at Level1 and return the folder in ``folder`` that
    torch_npu wrote, not analysed yet.

    Each call is waited for within its mark ``perfgate.call``, so that all of it ends
    before the profiler. Arguments that a torch_npu does not know are left out: one that
    analyses at once (no ``analyse_flag``) only costs time. Python stacks are not
    recorded: they made calls two to three times as long (three transformer layers,
    torch_npu 2.13), and lines come from the order of operators (``counting.lines``).
    Raises UnmeasuredError if no files were written.
    """
    import torch
    from torch_npu import profiler

    require_msprof()
    before = set(folder.iterdir())
    settings = call_supported(
        profiler._ExperimentalConfig,
        profiler_level=profiler.ProfilerLevel.Level1,
        aic_metrics=profiler.AiCMetrics.PipeUtilization,
        data_simplification=True,
    )
    handler = call_supported(
        profiler.tensorboard_trace_handler, dir_name=str(folder), analyse_flag=False
    )
    with call_supported(
        profiler.profile,
        activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.NPU],
        record_shapes=True,
        experimental_config=settings,
        on_trace_ready=handler,
    ):
        for _ in range(calls):
            with torch.profiler.record_function(CALL):
                call()
                synchronize()
    written = [path for path in folder.glob("*_ascend_pt") if path not in before]
    if len(written) != 1:
        raise UnmeasuredError(
            Message("device.recordings-written", {"count": len(written)})
        )
    return written[0]


def call_supported(function: Callable[..., Any], **arguments: Any) -> Any:
    """Call a function with the arguments that it has parameters for."""
    parameters = inspect.signature(function).parameters
    supported = {name: value for name, value in arguments.items() if name in parameters}
    return function(**supported)


def require_msprof() -> None:
    """Raise UnmeasuredError if torch_npu would not find CANN's ``msprof``: without it
    there are no kernels.
    """
    if shutil.which("msprof") is None:
        raise UnmeasuredError(Message("device.no-msprof"))


def analyse(
    folder: Path, recordings: Sequence[Path], *, seconds: float | None = None
) -> list[Path]:
    """Have the recordings in ``folder`` analysed and return those that are complete, in
    the order given.

    One process that imports torch_npu anew analyses all of them: it forks, and a fork
    of a process with threads that hold locks may never end. Raises UnmeasuredError if
    it takes too long; its output is in ``analysis.log`` in the folder.
    """
    limit = (
        ANALYSIS_SECONDS + SECONDS_PER_RECORDING * len(recordings)
        if seconds is None
        else seconds
    )
    paths = [folder]
    for _ in range(ATTEMPTS):
        _run_analysis(folder, paths, limit)
        paths = [recording for recording in recordings if missing_from(recording)]
        if not paths:
            break
    return [recording for recording in recordings if recording not in paths]


def why_incomplete(folder: Path, recording: Path) -> UnmeasuredError:
    return UnmeasuredError(
        Message(
            "device.analysis-incomplete",
            {
                "missing": ", ".join(missing_from(recording)),
                "printed": _tail(folder / "analysis.log"),
            },
        )
    )


def missing_from(recording: Path) -> list[str]:
    """The files that an analysed recording should have and has not, or has not to their
    end.
    """
    results = recording / RESULTS
    missing = []
    for name in _TABLES:
        table = results / name
        if not table.is_file() or not table.stat().st_size:
            missing.append(name)
    if not _ends_with(results / _TIMELINE, b"]"):
        missing.append(_TIMELINE)
    return missing


def _run_analysis(folder: Path, paths: Sequence[Path], seconds: float) -> None:
    with (folder / "analysis.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", _ANALYSIS, *map(str, paths)],
            # -m puts the current folder before all others on the import path; here it
            # has no modules.
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # It starts further processes; all of them must end with it.
            start_new_session=True,
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            printed = _tail(folder / "analysis.log")
            raise UnmeasuredError(
                Message(
                    "device.analysis-too-slow", {"seconds": seconds, "printed": printed}
                )
            ) from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _ends_with(file: Path, end: bytes) -> bool:
    try:
        with file.open("rb") as stream:
            stream.seek(max(0, file.stat().st_size - 64))
            return stream.read().rstrip().endswith(end)
    except OSError:
        return False


def _tail(file: Path) -> str:
    try:
        text = file.read_bytes()[-_TAIL_BYTES:].decode(errors="replace")
    except OSError:
        return "nothing"
    lines = [line.strip() for line in text.replace("\r", "\n").splitlines()]
    return " | ".join(line for line in lines if len(line) > 1) or "nothing"


def main(paths: list[str]) -> None:
    """Analyse recordings, of a folder one per CPU at a time: the process that
    ``analyse`` starts.
    """
    # torch first: it loads torch_npu itself, while importing torch_npu alone fails.
    import torch  # noqa: F401
    from torch_npu.profiler import profiler

    at_once = max(1, len(os.sched_getaffinity(0)))
    for path in paths:
        call_supported(profiler.analyse, profiler_path=path, max_process_number=at_once)


if __name__ == "__main__":
    main(sys.argv[1:])
