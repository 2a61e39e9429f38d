"""The changes `perfgate doctor` plants, the verdict expected for each, and the gate's
actual verdict.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from perfgate.config import CONFIG_NAME, GateSettings
from perfgate.document.comparison import Paired
from perfgate.document.decision import DecisionDocument, Verdict
from perfgate.document.doctor import PlantedOutcome, PlantedResult
from perfgate.document.files import read_decision
from perfgate.flows.shared.scratch import ScratchRepository
from perfgate.judging.report.text.messages import word, word_all
from perfgate.system.folders import PACKAGE

PROJECT = PACKAGE / "doctor"
# Counters need no clock, so their gates are short. Times are still measured and judged,
# as in every gate.
_SHORT: dict[str, Any] = {
    "looks": [8],
    "aa_pairs": 5,
    "quads": 2,
    "block_seconds": 0.005,
}


@dataclass(frozen=True)
class PlantedChange:
    """A patch in ``perfgate/doctor/changes``, the verdict it must get and the metric
    that must regress for it.

    ``alone``: only the metrics in ``also`` may regress besides. ``line``: the gate must
    name the line in this file. ``seconds`` is the approximate duration of the gate on
    two cores.
    """

    name: str
    title: str
    metric: str | None = None
    alone: bool = False
    also: tuple[str, ...] = ()
    line: str | None = None
    workload: str = "scorer"
    seconds: int = 12

    @property
    def verdict(self) -> Verdict:
        return "FAIL" if self.metric else "PASS"

    @property
    def timed(self) -> bool:
        """Whether a time must regress, not a counter."""
        return self.metric is None or self.metric.startswith(
            ("latency.", "throughput.")
        )


# The signer's call is 100 equal rounds plus less than 1 % overhead, on any processor;
# the cost of matrix products grows in steps that differ between processors. A call of
# the scorer takes 1/6 ms: a gate sees twice the 500 calls that a P99 needs. More work
# in every call moves every quantile of the call and the time of a whole block. Any
# additional work also shows in the instruction count, if the machine has one.
_WHOLE_BLOCK = ("throughput.turnaround", "hardware.instructions")
_SLOWER_CALL = ("latency.p50", "latency.p99", *_WHOLE_BLOCK)
CHANGES = (
    PlantedChange("no-change", "no change at all", alone=True, seconds=20),
    PlantedChange(
        "work-3-percent",
        "3 % more work in every call",
        "latency.low",
        alone=True,
        also=_SLOWER_CALL,
        workload="signer",
        seconds=20,
    ),
    PlantedChange(
        "work-5-percent",
        "5 % more work in every call",
        "latency.low",
        alone=True,
        also=_SLOWER_CALL,
        workload="signer",
        seconds=20,
    ),
    PlantedChange(
        "p99-only",
        "one call in 40 takes twice as long",
        "latency.p99",
        alone=True,
        also=_WHOLE_BLOCK,
        seconds=20,
    ),
    PlantedChange(
        "gap-only",
        "a destructor works between calls",
        "throughput.gap",
        alone=True,
        also=_WHOLE_BLOCK,
        seconds=20,
    ),
    PlantedChange("extra-copy", "one copy more", "counters.copies", line="scorer.py"),
    PlantedChange("extra-sync", "one synchronisation more", "counters.syncs"),
    PlantedChange("leak", "every output is kept", "memory.kept"),
    PlantedChange(
        "graph-break",
        "a branch on data inside a compiled model",
        "counters.graph_breaks",
        workload="compiled",
    ),
    PlantedChange(
        "deleted-work", "a step is left out, the output is wrong", "correctness"
    ),
    PlantedChange(
        "cached-output", "outputs are remembered by input", "counters.repeat_saves"
    ),
)


def run_planted(
    change: PlantedChange,
    settings: GateSettings,
    *,
    scratch: Path,
    out: Path,
    say: Callable[[str], None],
) -> PlantedResult:
    """Plant a change in a separate repository below ``scratch`` and gate it, with the
    gate's files in ``out``.
    """
    project = scratch / change.name
    _make_repository(
        project,
        change,
        settings if change.timed else replace(settings, **_SHORT),
    )
    # An earlier run of the doctor may have left one.
    (out / "decision.json").unlink(missing_ok=True)
    arguments = f"check --base main --workload {change.workload} --steps 4 --always --out".split()
    arguments.append(str(out))
    say(f"$ perfgate {' '.join(arguments)}")
    environment = {**os.environ, "PERFGATE_STORE": str(scratch / "store.db")}
    environment.pop("PERFGATE_DEVICE", None)
    started = time.monotonic()
    code = subprocess.run(
        [sys.executable, "-m", "perfgate", *arguments],
        cwd=project,
        env=environment,
        stdout=subprocess.DEVNULL,
        check=False,
    ).returncode
    seconds = round(time.monotonic() - started, 1)
    decision = None
    if (out / "decision.json").exists():
        decision = read_decision(out / "decision.json")
    return judge(change, decision, exit_code=code, seconds=seconds)


def judge(
    change: PlantedChange,
    decision: DecisionDocument | None,
    *,
    exit_code: int,
    seconds: float,
) -> PlantedResult:
    """Compare the gate's decision with the expected one."""
    result = PlantedResult(
        name=change.name,
        title=change.title,
        expected=change.verdict,
        metric=change.metric,
        verdict=None,
        exit_code=exit_code,
        fired=[],
        line=None,
        outcome="differs",
        reason=f"the check ended with exit code {exit_code} and no decision; its own message stands above",
        seconds=seconds,
    )
    if decision is None:
        return result
    fired: set[str] = set()
    lines: list[str] = []
    for comparison in decision.comparisons:
        if comparison.gating and comparison.outcome == "regressed":
            fired.add(comparison.metric)
            if comparison.metric == change.metric:
                lines += [part.line for part in comparison.parts if part.line]
    line = next(iter(lines), None)
    problems = _problems(change, decision, fired, line)
    outcome: PlantedOutcome = "agrees"
    if problems and _is_undecided(change, decision) and not _unexpected(change, fired):
        outcome = "too_busy"
    elif problems:
        outcome = "differs"
    return replace(
        result,
        verdict=decision.verdict,
        fired=sorted(fired),
        line=line,
        outcome=outcome,
        reason="; ".join(problems) or None,
    )


def _problems(
    change: PlantedChange, decision: DecisionDocument, fired: set[str], line: str | None
) -> list[str]:
    problems: list[str] = []
    if decision.verdict == "INCONCLUSIVE":
        problems.append(_why_inconclusive(decision))
    elif decision.verdict != change.verdict:
        problems.append(f"{change.verdict} was expected")
    if change.metric and change.metric not in fired:
        silent = f"{change.metric} was not compared"
        for comparison in decision.comparisons:
            if comparison.metric == change.metric:
                silent = f"{change.metric} is {comparison.outcome}"
                if comparison.reason:
                    silent += f" ({word(comparison.reason)})"
                break
        problems.append(silent)
    if unexpected := _unexpected(change, fired):
        problems.append(f"{', '.join(sorted(unexpected))} must not move")
    if (
        change.line
        and change.metric in fired
        and not (line or "").startswith(f"{change.line}:")
    ):
        problems.append(f"no line of {change.line} is named")
    return problems


def _unexpected(change: PlantedChange, fired: set[str]) -> set[str]:
    if not change.alone:
        return set()
    return fired - {change.metric or "", *change.also}


def _is_undecided(change: PlantedChange, decision: DecisionDocument) -> bool:
    """Whether the times were inconclusive. Counters need no clock, so a busy machine
    does not affect them.
    """
    invalid = {entry.kind for entry in decision.gaps.invalid}
    if not change.timed or "code_changed" in invalid:
        return False
    if change.metric is None:
        codes = {reason.code for reason in decision.reasons}
        return decision.verdict == "INCONCLUSIVE" and codes <= {
            "verdict.undecided",
            "verdict.invalid",
        }
    outcomes = {
        comparison.outcome
        for comparison in decision.comparisons
        if comparison.metric == change.metric
    }
    return "inconclusive" in outcomes or bool(decision.gaps.invalid)


def _why_inconclusive(decision: DecisionDocument) -> str:
    reasons = word_all(decision.reasons[:2]) or "inconclusive"
    floors = [
        floor.floor
        for floor in decision.measured.noise_floors
        if floor.metric == "latency.low"
    ]
    noise = ""
    if floors:
        noise = f", noise floor ±{max(floors) * 100:.1f} %"
    needed = 0
    for comparison in decision.comparisons:
        place = f"{comparison.workload}/{comparison.shape} {comparison.metric}"
        if isinstance(comparison, Paired) and place in reasons:
            needed = max(needed, comparison.pairs_needed or 0)
    remedy = ""
    if needed:
        remedy = f"about {needed} pairs would decide: raise [gate] budget, or "
    spent = f"{decision.measured.pairs} pairs in {decision.measured.duration:.0f} s"
    return f"{reasons} after {spent}{noise}; {remedy}use a quieter machine"


def _make_repository(
    project: Path, change: PlantedChange, settings: GateSettings
) -> None:
    shutil.copytree(
        PROJECT / "main", project, ignore=shutil.ignore_patterns("__pycache__")
    )
    with (project / CONFIG_NAME).open("a", encoding="utf-8") as config:
        # A planted change must fail the gate even if its cost is not visible on this
        # machine.
        config.write(gate_table(replace(settings, strict=True)))
    repository = ScratchRepository(project, "doctor")
    repository.start("A scorer and a filter")
    repository.branch(change.name)
    repository.git("apply", str(PROJECT / "changes" / f"{change.name}.patch"))
    repository.commit(change.title)


def gate_table(settings: GateSettings) -> str:
    """A ``[gate]`` table in TOML: numbers, lists of numbers and tables of names to
    numbers; unset values are omitted.
    """
    lines = ["", "[gate]"]
    for name, value in msgspec.to_builtins(settings).items():
        if value is not None:
            lines.append(f"{name} = {_toml(value)}")
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        return (
            "{ "
            + ", ".join(f'"{name}" = {_toml(member)}' for name, member in value.items())
            + " }"
        )
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, str):
        return f'"{value}"'
    return str(value).lower()  # true, false, 12, 0.02, 1e-05
