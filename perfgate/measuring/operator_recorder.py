"""Record the operators of the process it runs in, by its own torch.profiler, and write
the trace to the folder of its side.

Only the standard library is imported: the environment of a server may lack the
dependencies of perfgate. Operators of all threads are recorded, each under the Python
functions that ran it (torch before 2.7: only operators of the main thread).
"""

from __future__ import annotations

import ctypes
import gzip
import importlib
import json
import os
import shutil
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from perfgate.system.profiling import (
    OPERATORS,
    OPERATORS_SWITCH,
    PROFILE_SIGNAL,
    PROFILE_VARIABLE,
    RECORDING,
)

# A recording grows by tens of megabytes a second of work. A turn that takes longer is
# recorded in part; some of the time the other processes take to begin.
_MOST_SECONDS = 10.0
_CHUNK = 1 << 20

# The activity of an NPU, as torch and as torch_npu name it.
_NPU_ACTIVITIES = ("PrivateUse1", "NPU")
_MSPTI = "libmspti.so"

_recorder: OperatorRecorder | None = None


def toggle() -> None:
    """Begin to record where the folder says so, else stop.

    Called by the signal, in the main thread.
    """
    global _recorder  # noqa: PLW0603 - a process has one
    folder = Path(os.environ.get(PROFILE_VARIABLE, ""))
    is_wanted = (folder / OPERATORS_SWITCH).exists()
    running = _recorder is not None and _recorder.pid == os.getpid()
    if running and _recorder is not None and (not is_wanted or _recorder.is_over):
        _recorder.stop()
        _recorder = None
    elif is_wanted and not running:
        _recorder = OperatorRecorder(folder)
        _recorder.start()


class OperatorRecorder:
    """Records until it is stopped, and then writes ``PID.operators.json.gz``."""

    def __init__(self, folder: Path) -> None:
        self.pid = os.getpid()
        self._folder = folder
        self._profiler: Any = None
        self._ends = 0.0
        # The profiler must be stopped by the thread that started it, the main thread,
        # which gets the signal.
        self._timer = threading.Timer(
            _MOST_SECONDS, os.kill, (self.pid, PROFILE_SIGNAL)
        )
        self._timer.daemon = True

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._ends

    def start(self) -> None:
        self._profiler = started_profiler(with_stack=True, all_threads=True)
        self._ends = time.monotonic() + _MOST_SECONDS
        recorded = ""
        if self._profiler is not None:
            recorded = "torch"
            self._timer.start()
        with suppress(OSError):
            (self._folder / f"{self.pid}{RECORDING}").write_text(recorded)

    def stop(self) -> None:
        self._timer.cancel()
        if self._profiler is None:
            return
        plain = self._folder / f"{self.pid}.writing.json"
        packed = self._folder / f"{plain.name}.gz"
        with suppress(OSError, RuntimeError):
            self._profiler.__exit__(None, None, None)
            self._profiler.export_chrome_trace(str(plain))
            with (
                plain.open("rb") as trace,
                # torch itself compresses line by line at level 9: fifteen times as
                # long, for a tenth of the bytes less.
                gzip.open(packed, "wb", compresslevel=5) as into,
            ):
                shutil.copyfileobj(trace, into, _CHUNK)
            plain.unlink()
            packed.replace(self._folder / f"{self.pid}{OPERATORS}")


def started_profiler(
    *, with_stack: bool = False, record_shapes: bool = False, all_threads: bool = False
) -> Any:
    """A profiler of torch in its context; None where there is no torch, or the program
    profiles itself.

    It records the host, and the kernels of a CUDA device or of an NPU that this process
    uses.
    """
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "cuda"):  # it is being imported
        return None
    settings: dict[str, Any] = {
        "with_stack": with_stack,
        "record_shapes": record_shapes,
    }
    if all_threads and (config := _all_threads()) is not None:
        settings["experimental_config"] = config
    try:
        if torch.cuda.is_initialized():
            module = importlib.import_module("torch.profiler")
            kinds = [module.ProfilerActivity.CPU, module.ProfilerActivity.CUDA]
            profiler = module.profile(activities=kinds, **settings)
        else:
            # The profiler inside torch.profiler.profile, which itself imports hundreds
            # of modules: a second of CPU time.
            if _records_npu(torch):
                settings |= {"use_device": "npu", "use_kineto": True}
            profiler = importlib.import_module("torch.autograd.profiler").profile(
                use_cpu=True, **settings
            )
        profiler.__enter__()
    except RuntimeError:
        return None
    _note_rank(torch)
    return profiler


def _records_npu(torch: Any) -> bool:
    """Whether torch's profiler records the kernels of the NPU that this process uses:
    torch_npu does so by libmspti of CANN.

    torch_npu 2.13.0 raises at the end of a recording if that library is missing. One
    that does not know it records the host.
    """
    npu = getattr(torch, "npu", None)
    if (
        npu is None
        or not npu.is_initialized()
        or not hasattr(torch.autograd, "_supported_activities")
    ):
        return False
    activities = {kind.name for kind in torch.autograd._supported_activities()}
    if activities.isdisjoint(_NPU_ACTIVITIES):
        return False
    try:
        ctypes.CDLL(_MSPTI)
    except OSError:
        return False
    return True


def _note_rank(torch: Any) -> None:
    """Write the rank and its process group into the recording, as
    torch.profiler.profile does.
    """
    distributed = sys.modules.get("torch.distributed")
    if (
        distributed is None
        or not distributed.is_available()
        or not distributed.is_initialized()
    ):
        return
    about = {
        "backend": distributed.get_backend(),
        "rank": distributed.get_rank(),
        "world_size": distributed.get_world_size(),
    }
    with suppress(AttributeError, TypeError):  # not public
        about["pg_config"] = distributed.distributed_c10d._get_all_pg_configs()
    with suppress(AttributeError, TypeError):
        torch.autograd._add_metadata_json("distributedInfo", json.dumps(about))


def _all_threads() -> Any:
    """The setting by which threads are recorded that began before; None of a torch that
    has none.
    """
    with suppress(ImportError, AttributeError, TypeError):
        config = importlib.import_module("torch._C._profiler")._ExperimentalConfig
        return config(profile_all_threads=True)
    return None
