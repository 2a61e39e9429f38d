"""Write what the fake device did as Kineto writes it (Chrome trace events, the form torch.profiler exports)."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_PROCESS, _THREAD = 4242, 4242
_STREAMS = {"compute": 7, "copy": 20, "side": 33}


@dataclass
class TraceLog:
    """Trace events in the order they were issued. Times come in as nanoseconds and stand in microseconds."""

    events: list[dict[str, Any]] = field(default_factory=list)
    correlation: int = 0

    def kernel(self, op: str, began: int, ended: int, start: int, end: int, *, stream: str) -> None:
        """Log an operator on the host and the one kernel it launched."""
        self.correlation += 1
        self._host("cpu_op", op, began, ended, {"External id": self.correlation})
        name = op.rpartition("::")[2] + "_kernel"
        self._device("kernel", name, start, end, stream, {})

    def launch(self, began: int, ended: int) -> None:
        """Log the runtime call that launched the latest kernel."""
        self._host("cuda_runtime", "cudaLaunchKernel", began, ended, {"correlation": self.correlation})

    def copy(self, kind: str, size: int, began: int, ended: int, start: int, end: int, *, stream: str) -> None:
        """Log a copy operator on the host and the copy on the device."""
        self.correlation += 1
        self._host("cpu_op", "aten::copy_", began, ended, {"External id": self.correlation})
        self._device("gpu_memcpy", kind, start, end, stream, {"bytes": size})

    def annotation(self, name: str, began: int, ended: int) -> None:
        """Log a span of the host that the user named."""
        self._host("user_annotation", name, began, ended, {})

    def _host(self, category: str, name: str, began: int, ended: int, args: dict[str, Any]) -> None:
        self._add(category, name, began, ended, _PROCESS, _THREAD, args)

    def _device(self, category: str, name: str, start: int, end: int, stream: str, args: dict[str, Any]) -> None:
        number = _STREAMS[stream]
        ids = {"device": 0, "stream": number, "correlation": self.correlation, "External id": self.correlation}
        self._add(category, name, start, end, 0, number, {**ids, **args})

    def _add(self, category: str, name: str, start: int, end: int, pid: int, tid: int, args: dict[str, Any]) -> None:
        times = {"ts": round(start / 1000, 3), "dur": round((end - start) / 1000, 3)}
        self.events.append({"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, **times, "args": args})


def write_trace(log: TraceLog, path: Path) -> None:
    """Write the log, gzipped where the name ends in .gz."""
    document = {"schemaVersion": 1, "displayTimeUnit": "ms", "baseTimeNanoseconds": 0, "traceEvents": log.events}
    text = json.dumps(document).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
