"""What a SQLite export of a million rows costs: `perfgate trace top` beside the sqlite3
module that only fetches, in turns.

    python benchmarks/trace/export.py --rows 1000000

The tables, their columns and how many rows each has for a kernel are those of a
recorded export of 2025-01 (schema 1.0.0, Level1, PipeUtilization, with stacks and
memory). ``spans`` fetches every row of the tables that say what ran and what memory
there was, ``all`` of every table. Ratios within one run are the result. No bound is
asserted.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from cost import TRACE, Command, cheapest

TABLES = {
    "STRING_IDS": "id INTEGER PRIMARY KEY, value TEXT",
    "META_DATA": "name TEXT, value TEXT",
    "RANK_DEVICE_MAP": "rankId INTEGER, deviceId INTEGER",
    "STEP_TIME": "id INTEGER, startNs INTEGER, endNs INTEGER",
    "TASK": "startNs INTEGER, endNs INTEGER, deviceId INTEGER, connectionId INTEGER, globalTaskId INTEGER, globalPid INTEGER, "
    "taskType INTEGER, contextId INTEGER, streamId INTEGER, taskId INTEGER, modelId INTEGER",
    "COMPUTE_TASK_INFO": "name INTEGER, globalTaskId INTEGER PRIMARY KEY, blockDim INTEGER, mixBlockDim INTEGER, "
    "taskType INTEGER, opType INTEGER, inputFormats INTEGER, inputDataTypes INTEGER, inputShapes INTEGER, "
    "outputFormats INTEGER, outputDataTypes INTEGER, outputShapes INTEGER, attrInfo INTEGER",
    "CANN_API": "startNs INTEGER, endNs INTEGER, type INTEGER, globalTid INTEGER, connectionId INTEGER PRIMARY KEY, "
    "name INTEGER",
    "PYTORCH_API": "startNs TEXT, endNs TEXT, globalTid INTEGER, connectionId INTEGER, name INTEGER, sequenceNumber INTEGER, "
    "fwdThreadId INTEGER, inputDtypes INTEGER, inputShapes INTEGER, callchainId INTEGER, type INTEGER",
    "MEMORY_RECORD": "component INTEGER, timestamp INTEGER, totalAllocated INTEGER, totalReserved INTEGER, "
    "totalActive INTEGER, streamPtr INTEGER, deviceId INTEGER",
    "OP_MEMORY": "name INTEGER, size INTEGER, allocationTime INTEGER, releaseTime INTEGER, activeReleaseTime INTEGER, "
    "duration INTEGER, activeDuration INTEGER, allocationTotalAllocated INTEGER, allocationTotalReserved INTEGER, "
    "allocationTotalActive INTEGER, releaseTotalAllocated INTEGER, releaseTotalReserved INTEGER, releaseTotalActive INTEGER, "
    "streamPtr INTEGER, deviceId INTEGER",
    "NPU_MODULE_MEM": "moduleId INTEGER, timestampNs INTEGER, totalReserved NUMERIC, deviceId INTEGER",
    "TASK_PMU_INFO": "globalTaskId INTEGER, name INTEGER, value NUMERIC",
    "COMMUNICATION_TASK_INFO": "name INTEGER, globalTaskId INTEGER, taskType INTEGER, planeId INTEGER, groupName INTEGER, "
    "notifyId INTEGER, rdmaType INTEGER, srcRank INTEGER, dstRank INTEGER, transportType INTEGER, size INTEGER, "
    "dataType INTEGER, linkType INTEGER, opId INTEGER",
    "ACC_PMU": "accId INTEGER, readBwLevel INTEGER, writeBwLevel INTEGER, readOstLevel INTEGER, writeOstLevel INTEGER, "
    "timestampNs NUMERIC, deviceId INTEGER",
    "CONNECTION_IDS": "id INTEGER, connectionId INTEGER",
    "PYTORCH_CALLCHAINS": "id INTEGER, stack INTEGER, stackDepth INTEGER",
}
NO_SPANS = (
    "TASK_PMU_INFO",
    "COMMUNICATION_TASK_INFO",
    "ACC_PMU",
    "CONNECTION_IDS",
    "PYTORCH_CALLCHAINS",
)
FETCH = """
import sqlite3, sys
for name in sys.argv[2:]:
    for row in sqlite3.connect(sys.argv[1]).execute(f"SELECT * FROM {name}"):
        pass
"""
# Rows beside a kernel, all tables together; kernels in a step.
ROWS, KERNELS = 95, 187
START, PROCESS, EAGER = 1_764_000_000_000_000_000, 3_136_493, 4_294_967_295
THREAD, STREAM = PROCESS << 32 | 77, 7332
TYPES = (
    "MatMulV2",
    "Add",
    "Mul",
    "Cast",
    "TransData",
    "SoftmaxV2",
    "LayerNormV4",
    "FlashAttentionScore",
)
COUNTERS = [
    f"{core}_{counter}"
    for core in ("aic", "aiv")
    for counter in (
        "total_time",
        "total_cycles",
        "icache_miss_rate",
        "mac_time",
        "mac_ratio",
        "scalar_time",
        "scalar_ratio",
    )
] + [
    f"{unit}_{part}"
    for unit in (
        "aic_mte1",
        "aic_mte2",
        "aic_fixpipe",
        "aiv_mte1",
        "aiv_mte2",
        "aiv_mte3",
        "aiv_vec",
    )
    for part in ("time", "ratio")
]
Row = tuple[str, tuple[object, ...]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument(
        "--write", type=Path, help="only write the export, to this path"
    )
    options = parser.parse_args()
    if options.write:
        write_export(options.write, options.rows)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ascend_pytorch_profiler_0.db"
        rows = write_export(path, options.rows)
        size, total = path.stat().st_size, sum(rows.values())
        read = [table for table in TABLES if table not in NO_SPANS]
        ways: dict[str, Command] = {
            "perfgate": [*TRACE, "top", path],
            "spans": [sys.executable, "-c", FETCH, path, *read],
            "all": [sys.executable, "-c", FETCH, path, *TABLES],
        }
        costs = cheapest(ways, options.turns)
        print(
            f"{total:,} rows, {sum(rows[table] for table in read):,} of them in `spans`; {size / 1e6:.0f} MB"
        )
        print(
            f"{'':10}{'CPU s':>8}{'s/M rows':>10}{'perfgate/it':>13}{'memory/file':>13}"
        )
        for way, (seconds, memory, _) in costs.items():
            per_million, ratio = (
                seconds / total * 1e6,
                costs["perfgate"].cpu_seconds / seconds,
            )
            print(
                f"{way:10}{seconds:8.2f}{per_million:10.2f}{ratio:13.2f}{memory / size:13.2f}"
            )


def write_export(path: Path, rows: int) -> dict[str, int]:
    """Write about so many rows, and say how many each table has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    batches: dict[str, list[tuple[object, ...]]] = {table: [] for table in TABLES}
    counts = dict.fromkeys(TABLES, 0)
    connection = sqlite3.connect(path)

    def insert(table: str) -> None:
        counts[table] += len(batches[table])
        marks = ", ".join("?" * (TABLES[table].count(",") + 1))
        connection.executemany(f"INSERT INTO {table} VALUES ({marks})", batches[table])  # noqa: S608 - names above
        batches[table].clear()

    for table, columns in TABLES.items():
        connection.execute(f"CREATE TABLE {table} ({columns})")
    for table, row in Recording().rows(rows // ROWS):
        batches[table].append(row)
        if len(batches[table]) == 10_000:
            insert(table)
    for table in TABLES:
        insert(table)
    connection.execute("CREATE INDEX TaskIndex ON TASK (startNs, globalTaskId)")
    connection.commit()
    connection.close()
    return counts


class Recording:
    """Kernels of eight types and forty forms of inputs, and what stands beside each;
    rows are yielded with their table.
    """

    def __init__(self) -> None:
        self._draw = random.Random(7)
        self._texts: dict[str, int] = defaultdict(lambda: len(self._texts))
        self._forms = [
            f'"{self._draw.choice((1, 8, 32))},{64 * n};{64 * n},4096"'
            for n in range(1, 41)
        ]

    def rows(self, kernels: int) -> Iterator[Row]:
        now = START
        for number in range(kernels):
            length, start = (
                self._draw.randrange(2_000, 400_000),
                now + self._draw.randrange(20_000, 60_000),
            )
            kind = TYPES[number % len(TYPES)]
            if number % KERNELS == 0:
                yield "STEP_TIME", (number // KERNELS, now, now + 150_000 * KERNELS)
            yield from self._calls(number, kind, now, start)
            yield from self._tasks(number, kind, start, length)
            yield from self._memory(number, kind, now, start)
            yield from self._unread(number, now)
            now = start + length + self._draw.randrange(20, 3_000)
        yield "RANK_DEVICE_MAP", (0, 0)
        yield "META_DATA", ("SCHEMA_VERSION", "1.0.0")
        for name, number in self._texts.items():
            yield "STRING_IDS", (number, name)

    def _calls(self, number: int, kind: str, called: int, start: int) -> Iterator[Row]:
        """What the host did for a kernel."""
        yield self._call(called, start, f"ProfilerStep#{number // KERNELS}", 50003)
        for depth in range(1, 7):
            name = f"model_{self._draw.randrange(40)}.py({number % 90}): forward"
            yield self._call(called + depth, start - depth, name, 50003)
        for depth in range(4):
            name, inputs = (
                f"aten::{kind.lower()}_{number % 50 + depth}",
                self._forms[number % 40] if depth % 2 else None,
            )
            yield self._call(
                called + 10 + depth, start - 10 - depth, name, 50001, inputs=inputs
            )
        yield self._call(
            called + 100, called + 900, "Enqueue", 50002, connection=2 * number
        )
        yield self._call(
            called + 2_000,
            start - 3_000,
            f"Dequeue@aclnn{kind}",
            50002,
            connection=2 * number + 1,
        )
        for part, level in enumerate((20000, 20000, 20000, 10000)):
            times, title = (
                (called + 2_100 + part, start - 4_000 - part),
                self._texts[f"aclnn{kind}_{part}"],
            )
            yield "CANN_API", (*times, level, THREAD, 4 * number + part, title)

    def _call(
        self,
        start: int,
        end: int,
        name: str,
        level: int,
        *,
        inputs: str | None = None,
        connection: int | None = None,
    ) -> Row:
        """A row of PYTORCH_API, whose times are text."""
        shapes = None if inputs is None else self._texts[inputs]
        times = str(start), str(end)
        return "PYTORCH_API", (
            *times,
            THREAD,
            connection,
            self._texts[name],
            -1,
            0,
            shapes,
            shapes,
            None,
            level,
        )

    def _tasks(self, number: int, kind: str, start: int, length: int) -> Iterator[Row]:
        """What the device ran, the kernel first."""
        text = self._texts
        for part, task in enumerate(
            (
                "KERNEL_AICORE",
                "EVENT_RECORD",
                "Notify Wait" if number % 9 else "MEMCPY_ASYNC",
            )
        ):
            begin, place = start + part * length, (2, number % 65536, EAGER)
            end, connection = begin + (1_000 if part else length), 4 * number + 3 - part
            yield (
                "TASK",
                (
                    begin,
                    end,
                    0,
                    connection,
                    3 * number + part,
                    PROCESS,
                    text[task],
                    EAGER,
                    *place,
                ),
            )
        named = (
            text[f"aclnn{kind}_{number % 50}"],
            3 * number,
            24,
            0,
            text["AI_CORE"],
            text[kind],
        )
        inputs = text["ND;ND"], text["BF16;BF16"], text[self._forms[number % 40]]
        yield (
            "COMPUTE_TASK_INFO",
            (*named, *inputs, text["ND"], text["BF16"], text['"8,4096"'], text[""]),
        )
        for counter in COUNTERS:
            is_share = counter.endswith(("ratio", "rate"))
            value = self._draw.random() if is_share else self._draw.randrange(length)
            yield "TASK_PMU_INFO", (3 * number, text[counter], value)

    def _memory(self, number: int, kind: str, called: int, start: int) -> Iterator[Row]:
        held = 1 << 30 | self._draw.randrange(1 << 29)
        for part in range(5):
            component = self._texts["PTA" if part % 2 else "PTA+GE"]
            yield (
                "MEMORY_RECORD",
                (component, called + part, held, held + 4096, held, STREAM, 0),
            )
        length = start - called
        times = called, start, start, length, length
        name = self._texts[f"aten::{kind.lower()}"]
        yield "OP_MEMORY", (name, 512 << number % 12, *times, *[held] * 6, STREAM, 0)
        for module in range(6):
            yield "NPU_MODULE_MEM", (module, called, (module % 2) << 20, 0)

    def _unread(self, number: int, called: int) -> Iterator[Row]:
        """Tables that no totals are made of."""
        text = self._texts
        for part in range(2):
            named = (
                text["hcom_allReduce__586_0_1"],
                3 * number + part,
                text["Notify Wait"],
                part,
                text["group"],
            )
            yield (
                "COMMUNICATION_TASK_INFO",
                (*named, 4294967380, 65535, 0, 1, 0, 4096, 65535, 65535, 1),
            )
        for part in range(4):
            yield "ACC_PMU", (part, 0, 0, 0, 0, called + part, 0)
        for part in range(3):
            yield "CONNECTION_IDS", (2 * number, 9_884 + 3 * number + part)
        for part in range(25):
            yield (
                "PYTORCH_CALLCHAINS",
                (number, text[f"model_{part}.py({number % 90}): forward"], part),
            )


if __name__ == "__main__":
    main()
