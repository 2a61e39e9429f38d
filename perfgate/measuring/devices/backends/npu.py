"""An Ascend NPU through torch_npu, the package as Huawei publishes it, with torch 2.7
and later.

Its own profiler records the device's work, and other processes analyse the recordings
afterwards.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from perfgate.document.message import Message, UnmeasuredError, quote
from perfgate.document.telemetry import DeviceState
from perfgate.measuring.devices.ascend.machine import (
    installed_cann,
    missing_libraries,
    read_software,
    refuse_blocking,
    set_env,
)
from perfgate.measuring.devices.ascend.reading import read_telemetry
from perfgate.measuring.devices.backends import _npu_profiler
from perfgate.measuring.devices.backends._shared import (
    GIB,
    AcceleratorDevice,
    first_line,
    open_accelerator,
    require_packages,
)
from perfgate.measuring.devices.device import Call, Capability
from perfgate.measuring.devices.host import Host
from perfgate.trace.readers.ascend.archive import pack

KIND = "npu"
# torch_npu prints this once per process and operator, from C++ to the standard error
# (csrc/aten/common VariableFallbackKernel): "CAUTION: The operator 'aten::lgamma.out'
# is not currently supported on the NPU backend and will fall back to run on the CPU."
_FALLBACK = re.compile(
    rb"The operator '(aten::\w+)(?:\.\w+)?' is not currently supported on the NPU backend"
)

# Of the standard error, to look for those warnings in.
_MOST_BYTES = 32 << 20
# For versions of torch_npu without it in their properties (hicann/catlass,
# include/acot/arch/arch.hpp: L2CacheByte).
_L2_BYTES = {"Ascend910B3": 192 << 20}


def open_device(index: int = 0) -> NpuDevice:
    """The NPU that torch_npu calls ``npu:index``.

    Raises MeasuringError, with the missing part and the remedy, if it cannot be used,
    or if ASCEND_LAUNCH_BLOCKING would make every time meaningless.
    """
    refuse_blocking(os.environ)
    same = "torch and the torch-npu of the same version there, e.g. pip install torch==2.7.1 torch-npu==2.7.1"
    require_packages("torch", "torch_npu", install=same)
    module = _import_npu()
    return open_accelerator(
        NpuDevice,
        module,
        index,
        package="torch_npu",
        absent="device.no-npu",
        taken="device.npu-taken",
    )


class NpuDevice(AcceleratorDevice):
    """One Ascend NPU; fulfils ``Device``."""

    kind = KIND
    capabilities: frozenset[Capability] = frozenset(
        {
            "own_memory",
            "queue",
            "kernel_timeline",
            "allocation_count",
            "spoiled_by_errors",
            "own_formats",
            "late_analysis",
        }
    )

    def __init__(self, module: Any, index: int) -> None:
        # Before the first operator, so that none of its warnings is missed.
        self._errors = OwnErrors()
        super().__init__(module, index)
        self._properties = module.get_device_properties(index)
        self.name = str(module.get_device_name(index))

    def properties(self) -> dict[str, str]:
        software = read_software(Host())
        properties = {
            "model": self.name,
            "memory": f"{round(self._properties.total_memory / GIB)} GiB",
            "cube cores": getattr(self._properties, "cube_core_num", None),
            "vector cores": getattr(self._properties, "vector_core_num", None),
            "soc": _asked(self.module.utils, "get_soc_version"),
            "cann": software.cann or _asked(self.module.utils, "get_cann_version"),
            "driver": software.driver,
            "firmware": software.firmware,
            "torch_npu": software.torch_npu,
            **dict(self._switches()),
        }
        return {
            name: str(value)
            for name, value in properties.items()
            if value not in (None, "")
        }

    def cache_bytes(self) -> int | None:
        """The size of the L2 cache as torch_npu reports it, else by the chip's name."""
        return super().cache_bytes() or _L2_BYTES.get(self.name)

    def _switches(self) -> Iterator[tuple[str, Any]]:
        import torch_npu

        precompiled = _asked(self.module, "is_jit_compile_false")
        if precompiled is not None:
            yield "operators", "precompiled" if precompiled else "compiled at run time"
        # config.allow_internal_format can be set and not be read; its option can.
        internal = _asked(torch_npu._C, "_npu_getOption", "ALLOW_INTERNAL_FORMAT")
        yield (
            "internal formats",
            internal.decode() if isinstance(internal, bytes) else internal,
        )
        for name in ("matmul", "conv"):
            yield (
                f"{name} hf32",
                getattr(getattr(self.module, name, None), "allow_hf32", None),
            )
        yield "task queue", _asked(self.module, "get_task_queue_enable")

    def record_trace(self, call: Call, *, calls: int, folder: Path, name: str) -> Path:
        path = folder / f"{name}.zip"
        with tempfile.TemporaryDirectory(
            prefix="npu_profile_", ignore_cleanup_errors=True
        ) as scratch:
            raw = Path(scratch).resolve()
            recording = self.record_raw(call, calls=calls, folder=raw)
            if not _npu_profiler.analyse(raw, [recording]):
                raise _npu_profiler.why_incomplete(raw, recording)
            pack(recording, path)
        return path

    def record_raw(self, call: Call, *, calls: int, folder: Path) -> Path:
        return _npu_profiler.record(
            call, calls=calls, folder=folder.resolve(), synchronize=self.synchronize
        )

    def analyse_raw(self, folder: Path, recordings: Sequence[Path]) -> list[Path]:
        complete = _npu_profiler.analyse(folder.resolve(), recordings)
        if recordings and not complete:
            raise _npu_profiler.why_incomplete(folder.resolve(), recordings[0])
        return complete

    def fallbacks(self) -> frozenset[str] | None:
        """The operators that torch_npu has warned of since the device was opened.

        It warns on the standard error: if that is not a file (a terminal, a pipe), the
        warnings are unknown.
        """
        printed = self._errors.read()
        if printed is None:
            return None
        return frozenset(name.decode() for name in _FALLBACK.findall(printed))

    def read_tool(self) -> DeviceState:
        return read_telemetry(self.index, own=frozenset({os.getpid()}))


def _import_npu() -> Any:
    """``torch.npu``.

    Raises MeasuringError, with the missing part, if torch and torch_npu cannot be
    imported.
    """
    try:
        import torch
        import torch_npu  # noqa: F401
    except (ImportError, OSError, RuntimeError) as error:
        remedy = Message("device.npu-versions")
        host = Host()
        if missing := missing_libraries(host):
            home = next(iter(installed_cann(host)), None)
            command = (
                quote(set_env(str(home))) if home else Message("device.npu-install")
            )
            remedy = Message(
                "device.npu-libraries",
                {"libraries": ", ".join(missing), "command": command},
            )
        raise UnmeasuredError(
            Message(
                "device.no-torch-npu", {"error": first_line(error), "remedy": remedy}
            )
        ) from error
    return torch.npu  # type: ignore[attr-defined]


def _asked(owner: Any, name: str, *arguments: str) -> Any:
    """A function's result; None if this torch_npu lacks the function, or it fails."""
    function = getattr(owner, name, None)
    if function is None:
        return None
    try:
        return function(*arguments)
    except (RuntimeError, TypeError, ValueError):
        return None


class OwnErrors:
    """The standard error from here on, if it is a regular file, as a worker's always
    is.
    """

    def __init__(self) -> None:
        self._start = _size()

    def read(self) -> bytes | None:
        """The text written since, or the rest of a truncated file; None if it cannot be
        read.
        """
        end = _size()
        if self._start is None or end is None:
            return None
        start = 0
        if end >= self._start:
            start = self._start
        try:
            with Path("/proc/self/fd/2").open("rb") as stream:
                stream.seek(start)
                return stream.read(min(end - start, _MOST_BYTES))
        except OSError:
            return None


def _size() -> int | None:
    try:
        status = os.fstat(2)
    except OSError:
        return None
    if stat.S_ISREG(status.st_mode):
        return status.st_size
    return None
