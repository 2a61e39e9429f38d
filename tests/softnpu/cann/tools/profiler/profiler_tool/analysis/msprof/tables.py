"""The csv files of mindstudio_profiler_output."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, pvariance

import counters
from recording import Recording, Task

NOT_AVAILABLE = "N/A"
SUMMARY = (
    "Device_id,Model ID,Task ID,Stream ID,Op Name,OP Type,OP State,Task Type,Task Start Time(us),Task Duration(us),"
    "Task Wait Time(us),Block Num,Mix Block Num,HF32 Eligible,Input Shapes,Input Data Types,Input Formats,"
    "Output Shapes,Output Data Types,Output Formats,Context ID"
)
STATISTIC = "Device_id,OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)"
APIS = "Device_id,Level,API Name,Time(us),Count,Avg(us),Min(us),Max(us),Variance"
TASKS = "Device_id,kernel_name,kernel_type,stream_id,task_id,task_time(us),task_start(us),task_stop(us)"
L2_CACHE = "Device_id,Stream Id,Task Id,Hit Rate,Victim Rate,Op Name"


def write(recording: Recording, folder: Path, stamp: str) -> None:
    """Write each table whose data were collected."""

    def table(name: str, header: list[str], rows: Iterator[list]) -> None:
        with (folder / f"{name}_{stamp}.csv").open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header)
            writer.writerows(rows)

    operators = [task for task in recording.tasks if not task.is_copy]
    table("op_summary", [*SUMMARY.split(","), *counters.columns(recording.metrics)], summary(recording, operators))
    table("task_time", TASKS.split(","), task_times(recording))
    if recording.has_operators:
        table("op_statistic", STATISTIC.split(","), statistic(recording, operators))
        table("api_statistic", APIS.split(","), api_statistic(recording))
    if recording.has_l2_cache:
        table("l2_cache", L2_CACHE.split(","), l2_cache(recording))


def summary(recording: Recording, operators: list[Task]) -> Iterator[list]:
    """Yield op_summary, from which torch_npu makes kernel_details.csv."""
    end = None
    for task in operators:
        wait_us = 0 if end is None else max(0, task.begin - end) / 1000
        end = task.end
        time = [recording.wall_us(task.begin) + "\t", task.duration_us, wait_us]
        row = [recording.device, 4294967295]
        if task.link is not None:
            row += [NOT_AVAILABLE, NOT_AVAILABLE, task.name, task.api, NOT_AVAILABLE, task.core, *time, 0, 0]
            described = [NOT_AVAILABLE] * 8
        elif not recording.has_operators:
            row += [task.index, task.stream, task.name, NOT_AVAILABLE, NOT_AVAILABLE, NOT_AVAILABLE, *time, 0, 0]
            described = [NOT_AVAILABLE] * 8
        else:
            row += [task.index, task.stream, task.name, task.type, "dynamic", task.core, *time, task.cores, 0]
            described = ["NO", *sides(task), NOT_AVAILABLE]
        yield row + described + counters.values(task, recording.metrics)


def sides(task: Task) -> Iterator[str]:
    """Yield shapes, types and formats of inputs, then of outputs; shapes carry quotes of their own in msprof's csv."""
    for side in (task.inputs, task.outputs):
        yield f'"{side.shapes}"'
        yield side.types or NOT_AVAILABLE
        yield side.formats or NOT_AVAILABLE


def statistic(recording: Recording, operators: list[Task]) -> Iterator[list]:
    """Yield op_statistic: kernels by type and core, the longest in total first; communication has no row."""
    groups = defaultdict(list)
    for task in operators:
        if task.link is None:
            groups[task.type, task.core].append(task.duration_us)
    total = sum(map(sum, groups.values()))
    for (kind, core), times in sorted(groups.items(), key=lambda item: -sum(item[1])):
        yield [recording.device, kind, core, len(times), *spread(times), round(100 * sum(times) / total, 3)]


def spread(times: list[float]) -> list[float]:
    """Return total, least, mean and greatest time."""
    return [round(sum(times), 3), min(times), round(fmean(times), 3), max(times)]


def api_statistic(recording: Recording) -> Iterator[list]:
    """Yield api_statistic: the launches on the host."""
    groups = defaultdict(list)
    for task in [*recording.tasks, *recording.calls]:
        level = "communication" if task.link else "acl"
        name = "aclrtMemcpyAsync" if task.is_copy else task.api
        groups[level, name].append((task.launch_end - task.launch_begin) / 1000)
    for (level, name), times in sorted(groups.items()):
        total, least, mean, greatest = spread(times)
        yield ["host", level, name, total, len(times), mean, least, greatest, round(pvariance(times), 3)]


def task_times(recording: Recording) -> Iterator[list]:
    """Yield task_time: every task with its start and stop, which end in a tab."""
    for task in recording.tasks:
        times = [task.duration_us, recording.wall_us(task.begin) + "\t", recording.wall_us(task.end) + "\t"]
        yield [recording.device, task.name, task.core, task.stream, task.index, *times]


def l2_cache(recording: Recording) -> Iterator[list]:
    """Yield l2_cache; an Ascend910B reports no hit rate there and leaves the first operator out."""
    for task in [task for task in recording.tasks if task.is_kernel][1:]:
        yield [recording.device, task.stream, task.index, NOT_AVAILABLE, counters.VICTIM_RATE, task.name]
