"""Kernels of an export and their hardware counters."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from typing import NamedTuple

from perfgate.trace.readers._ascend.counters import Counters
from perfgate.trace.readers._ascend.export_words import Words
from perfgate.trace.readers._ascend.kernels import EAGER_MODEL_ID
from perfgate.trace.readers._ascend.kernels import words as split_words
from perfgate.trace.recording import Kernel

KERNEL_COLUMNS = (
    "name", "opType", "taskType", "blockDim", "blockNum", "block_dim", "mixBlockDim", "mixBlockNum", "opState",
    "hf32Eligible", "waitNs", "inputShapes", "inputDataTypes", "inputFormats", "outputShapes", "outputDataTypes",
    "outputFormats",
)  # fmt: skip


class Task(NamedTuple):
    """One row of TASK; nanoseconds."""

    start: int
    duration: int
    device: int | None
    connection: int | None
    number: int | None
    type: str
    stream: int | None
    task: int | None
    model: int | None


def kernel_of(words: Words, task: Task, info: list[object], counters: Mapping[str, float]) -> Kernel:
    """Return the kernel of a task and its row of COMPUTE_TASK_INFO, cells in the order of KERNEL_COLUMNS."""
    name, kind, core, blocks, more_blocks, newest_blocks, mix, more_mix, state, hf32, wait, *tensors = info
    inputs, input_types, input_formats, outputs, output_types, output_formats = (words.cell(cell) for cell in tensors)
    whole = words.database.whole
    model = None if task.model == EAGER_MODEL_ID else task.model
    flag = words.cell(hf32)
    return Kernel(
        name=words.text(name),
        type=words.cell(kind),
        core=words.cell(core),
        start_ns=task.start,
        duration_ns=task.duration,
        wait_ns=whole(wait),
        stream=task.stream,
        task=task.task,
        model_id=model,
        state=words.cell(state),
        blocks=whole(_first(blocks, more_blocks, newest_blocks)),
        mix_blocks=whole(_first(mix, more_mix)),
        hf32=None if flag is None else flag.upper() == "YES",
        input_shapes=words.shapes(inputs),
        input_dtypes=split_words(input_types),
        input_formats=split_words(input_formats),
        output_shapes=words.shapes(outputs),
        output_dtypes=split_words(output_types),
        output_formats=split_words(output_formats),
        counters=counters,
    )


def read_counters(words: Words) -> dict[int | None, Counters]:
    """Return TASK_PMU_INFO by the number of the task."""
    names: dict[str, int] = {}
    factors: list[float] = []
    values: dict[int | None, array[float]] = {}
    for task, name, value in words.database.rows("TASK_PMU_INFO", ("globalTaskId", "name", "value")):
        title, factor = _counter(words.text(name))
        position = names.setdefault(title, len(names))
        if position == len(factors):
            factors.append(factor)
        row = values.setdefault(words.database.whole(task), array("d"))
        row.extend([math.nan] * (position + 1 - len(row)))
        number = words.database.number(value)
        row[position] = math.nan if number is None else number * factor
    for row in values.values():
        row.extend([math.nan] * (len(names) - len(row)))
    return {task: Counters(names, row) for task, row in values.items()}


def _counter(name: str) -> tuple[str, float]:
    """Return a counter's name as the tables write it, and what its numbers are multiplied by: times are nanoseconds here."""
    if name.endswith("_total_time"):
        return ("aicore_time(us)" if name.startswith("aic_") else f"{name.partition('_')[0]}_time(us)"), 1e-3
    return (f"{name}(us)", 1e-3) if name.endswith("_time") else (name, 1.0)


def _first(*values: object) -> object:
    return next((value for value in values if value is not None), None)
