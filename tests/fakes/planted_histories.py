"""Sixty histories of main with planted movements, and what perfgate answers about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from perfgate.document.run import (
    CounterSet,
    RunDocument,
    Session,
    Source,
    StepResult,
    Value,
    WorkloadRecord,
)
from perfgate.document.testbed import Environment, Testbed
from perfgate.document.trend import TrendDocument
from perfgate.flows.shared.doors import Quiet
from perfgate.flows.shared.trend.read import Wanted, find_trend, open_documents, read_histories
from perfgate.judging.store.index import Index, ProjectLog
from perfgate.judging.store.runs import run_entry
from perfgate.judging.store.store import Store
from tests.fakes.documents import TESTBED, make_run
from tests.fakes.history import MEASURED, commit_of
from tests.fakes.records import changed

START = datetime(2026, 3, 2, 2, 30, tzinfo=timezone.utc)
WORKLOADS = ("encoder", "ranker")
SHAPES = ("short", "long")
Origin = Literal["code", "benchmark", "host", "noise", "none"]
# A movement may be found this far from its version.
NEAR = 3


@dataclass(frozen=True)
class Event:
    """A movement from version ``at`` on, up to ``until``; of all workloads if none is named.

    ``ramp`` versions long it grows; ``operators`` more run; ``machine`` limits it to one of the machines.
    """

    at: int
    factor: float = 1.0
    workload: str = ""
    until: int = 10_000
    ramp: int = 1
    operators: int = 0
    benchmark: bool = False
    packages: bool = False
    clock: float = 1.0
    machine: int | None = None
    metric: str = ""

    def share(self, version: int) -> float:
        if not self.at <= version < self.until:
            return 0.0
        return min(1.0, (version - self.at + 1) / self.ramp)


@dataclass(frozen=True)
class PlantedHistory:
    """A history with its planted events; ``is_open`` are the versions of the regressions of code that are open at the end.

    ``testbeds`` are the versions at which each following testbed replaces the one before; ``bridged`` measures the last commit
    on the new testbed, too. ``drift`` are the versions in which the start of an open regression may be found.
    """

    name: str
    origin: Origin
    events: tuple[Event, ...] = ()
    is_open: frozenset[int] = frozenset()
    versions: int = 80
    testbeds: tuple[int, ...] = ()
    bridged: bool = True
    machines: int = 1
    noise: float = 0.012
    seed: int = 0
    drift: range | None = None


class Answer(NamedTuple):
    """The origins of the movements that were found, and the versions of the open regressions."""

    origins: list[str]
    open_versions: list[int]
    has_right_origin: bool
    is_exact: bool


def answer_of(history: PlantedHistory) -> Answer:
    document = trend_of(history)
    version_of = {commit_of(version): version for version in range(history.versions)}
    origins: list[str] = []
    for cause in document.causes:
        version = version_of.get(cause.first_bad or "", -1)
        is_planted = any(event.at - NEAR <= version <= event.at + event.ramp + NEAR for event in history.events)
        if history.origin in ("noise", "none") or is_planted:
            origins.append(cause.origin or "unknown")
    opened = sorted(version_of.get(cause.first_bad or "", -1) for cause in document.open_regressions)
    if history.origin in ("none", "noise"):
        has_right_origin = all(origin == "noise" for origin in origins)
    else:
        has_right_origin = bool(origins) and all(origin == history.origin for origin in origins)
    return Answer(origins, opened, has_right_origin, _is_exact(history, opened))


def _is_exact(history: PlantedHistory, opened: Sequence[int]) -> bool:
    if history.drift is not None:
        return bool(opened) and all(version in history.drift for version in opened)
    if len(opened) != len(history.is_open):
        return False
    return all(abs(found - planted) <= 1 for found, planted in zip(opened, sorted(history.is_open)))


def trend_of(history: PlantedHistory) -> TrendDocument:
    runs = planted_runs(history)
    by_id: dict[str, RunDocument] = {}
    entries = []
    for run in runs:
        run_id = f"{len(by_id):064x}"
        by_id[run_id] = run
        entries.append(run_entry(run, run_id, run.session.started_at))
    entries.sort(key=lambda entry: (-entry.started, entry.run.id))
    log = _MemoryLog(by_id, Index(entries))
    seconds = max(entry.started for entry in entries) + 3600
    stored = read_histories(log, Wanted(), Quiet(), seconds_since_1970=seconds)
    opened = open_documents(log, stored, note=lambda _: None)
    return find_trend(log, opened, before=None, confirmations=[], name_commits=lambda change: change)


class _MemoryLog(ProjectLog):
    """A log whose documents are in memory."""

    def __init__(self, documents: Mapping[str, RunDocument], index: Index) -> None:
        super().__init__(
            project="demo", store=cast("Store", None), index=index, damaged=[], acceptances=[], triages=[],
            confirmations=[], gates=[],
        )  # fmt: skip
        object.__setattr__(self, "documents", documents)

    def run(self, run_id: str) -> RunDocument:
        documents: Mapping[str, RunDocument] = self.__dict__["documents"]
        return documents[run_id]


def planted_runs(history: PlantedHistory) -> list[RunDocument]:
    """The runs of a history, oldest first."""
    random = np.random.default_rng(1_000 + history.seed)
    template = make_run(None, replicates=[], steps=[], counters=[])
    runs: list[RunDocument] = []
    for version in range(history.versions):
        for machine in range(history.machines):
            testbed = sum(version >= begin for begin in history.testbeds)
            if version in history.testbeds and history.bridged:
                runs.append(_run(template, history, version - 1, testbed, machine, random, hours=30))
            runs.append(_run(template, history, version, testbed, machine, random, hours=34 * machine // 10))
    return runs


def _run(
    template: RunDocument,
    history: PlantedHistory,
    version: int,
    testbed: int,
    machine: int,
    random: np.random.Generator,
    *,
    hours: float,
) -> RunDocument:
    began = START + timedelta(days=1.4 * version, hours=hours)
    events = [event for event in history.events if event.share(version) and event.machine in (None, machine)]
    comparable = {**TESTBED, "torch": f"2.{13 + testbed}.0+cpu", "machine": f"m{machine}"}
    workloads: list[WorkloadRecord] = []
    steps: list[StepResult] = []
    counters: list[CounterSet] = []
    packages = {"transformers": "4.50.0"}
    clock = 0.99
    for event in events:
        if event.packages:
            packages["transformers"] = "4.51.0"
        clock *= event.clock
    for number, workload in enumerate(WORKLOADS):
        own = [event for event in events if event.workload in ("", workload)]
        sha = "b" if any(event.benchmark for event in own) else "a"
        workloads.append(
            WorkloadRecord(name=workload, reference=f"perf/{workload}.py:{workload}", sha256=sha * 64, batch=8,
                           shapes=list(SHAPES))
        )  # fmt: skip
        for place, shape in enumerate(SHAPES):
            low = 0.036 * (1 + number) * (1 + place)
            # A faster testbed is faster for all.
            low *= 0.9**testbed * (1.05**machine)
            wild = (random.random() < 0.06) * random.exponential(0.2)
            low *= float(np.exp(random.normal(0, history.noise) + wild))
            values: list[Value] = []
            for metric, at in (
                ("latency.low", 1.0),
                ("latency.p50", 1.03),
                ("latency.p90", 1.11),
                ("latency.p99", 1.3),
            ):
                value = low * at * float(np.exp(random.normal(0, 0.05 if metric == "latency.p99" else 0.004)))
                for event in own:
                    if event.metric in ("", metric):
                        value *= 1 + (event.factor - 1) * event.share(version)
                values.append(Value(metric=metric, value=value, labels={"shape": shape}, count=800))
            steps.append(StepResult(number=1, slug="latency", workload=workload, status="ok", values=values,
                                    duration=6.2, procedure=MEASURED))  # fmt: skip
            count = 40 + sum(event.operators for event in own)
            counters.append(CounterSet(workload=workload, shape=shape, repeats=3,
                                       values={"counters.framework_ops": count, "counters.syncs": 0}, ops=[]))  # fmt: skip
        thermal = Value(metric="thermal.clock", value=clock * float(np.exp(random.normal(0, 0.003))))
        steps.append(StepResult(number=19, slug="thermal", workload=workload, status="ok", values=[thermal],
                                procedure=MEASURED))  # fmt: skip
    session = Session(
        id=f"{history.name}-{version}-{machine}-{testbed}-{hours}",
        started_at=began.isoformat(),
        finished_at=(began + timedelta(minutes=3)).isoformat(),
        seed=1,
        command="run",
    )
    fingerprint = f"{history.seed:04x}{testbed}{machine}".ljust(64, "f")
    fields: dict[str, Any] = {
        "session": session,
        "source": Source(commit=commit_of(version), branch="main", subject=f"Change number {version}"),
        "testbed": Testbed(fingerprint=fingerprint, device_kind="cpu", comparable=comparable),
        "environment": Environment(kind="running", python="3.11.7", packages=packages),
        "workloads": workloads,
        "steps": steps,
        "counters": counters,
    }
    return changed(template, **fields)


class _Garden:
    """The histories that were planted so far."""

    def __init__(self) -> None:
        self.histories: list[PlantedHistory] = []

    def plant(self, name: str, origin: Origin, *events: Event, is_open: Sequence[int] = (), **options: Any) -> None:
        number = len(self.histories) + 1
        self.histories.append(
            PlantedHistory(f"{number:02} {name}", origin, events, frozenset(is_open), seed=number, **options)
        )


def _histories() -> list[PlantedHistory]:
    garden = _Garden()
    for kind in (_code, _reverted_code, _benchmark, _host, _environment, _noise, _testbeds):
        kind(garden.plant)
    return garden.histories


def _code(plant: Callable[..., None]) -> None:
    for at, factor in ((30, 1.06), (40, 1.08), (50, 1.12), (60, 1.2)):
        plant("code, time of one workload", "code", Event(at, factor, "encoder"), is_open=[at])
    for at, operators in ((25, 1), (45, 3), (65, 8)):
        plant("code, count and time", "code", Event(at, 1.05, "ranker", operators=operators), is_open=[at])
    for at in (20, 70):
        plant("code, count alone", "code", Event(at, 1.0, "encoder", operators=2), is_open=[at])


def _reverted_code(plant: Callable[..., None]) -> None:
    for at, until in ((30, 45), (35, 60), (50, 66)):
        plant("code, reverted", "code", Event(at, 1.1, "encoder", until=until, operators=3))
    plant("code, reverted without a count", "code", Event(30, 1.1, "encoder", until=55))
    for first, second, until in ((20, 40, 60), (25, 45, 65)):
        plant(
            "code, the first of two reverted", "code", Event(first, 1.1, "encoder", until=until),
            Event(second, 1.06, "encoder"), is_open=[second],
        )  # fmt: skip
    plant(
        "code, the second of two reverted", "code", Event(20, 1.06, "encoder"),
        Event(40, 1.12, "encoder", until=60), is_open=[20],
    )  # fmt: skip
    plant("code, reverted and landed again", "code", Event(20, 1.1, "encoder", until=40), Event(60, 1.1, "encoder"),
          is_open=[60])  # fmt: skip
    plant("code, of all workloads with a count", "code", Event(40, 1.08, operators=2), is_open=[40])
    plant("code, on two machines", "code", Event(40, 1.08, "encoder"), is_open=[40], machines=2, versions=70)
    plant("code, drift of one workload", "code", Event(30, 1.15, "encoder", ramp=30), drift=range(27, 64))


def _benchmark(plant: Callable[..., None]) -> None:
    for at, factor in ((25, 1.3), (40, 0.7), (55, 1.1), (62, 0.9)):
        plant("benchmark of one workload", "benchmark", Event(at, factor, "encoder", benchmark=True))
    plant("benchmark of all workloads", "benchmark", Event(40, 1.2, benchmark=True))
    plant("benchmark with more operators", "benchmark", Event(40, 1.2, "ranker", benchmark=True, operators=10))
    plant("benchmark on two machines", "benchmark", Event(35, 1.25, "encoder", benchmark=True), machines=2, versions=70)
    plant("benchmark, changed back", "benchmark", Event(30, 1.2, "encoder", until=50, benchmark=True))


def _host(plant: Callable[..., None]) -> None:
    for at, factor, clock in ((25, 1.08, 0.92), (45, 1.12, 0.88), (60, 1.05, 0.95)):
        plant("host, lower clock", "host", Event(at, factor, clock=clock))
    for at, factor in ((30, 1.06), (45, 1.1), (60, 1.15)):
        plant("host, all workloads alike", "host", Event(at, factor))
    for at in (30, 50):
        plant("host, one of two machines", "host", Event(at, 1.1, machine=1), machines=2, versions=70)
    plant("host, repaired", "host", Event(30, 1.1, until=50))
    plant("host, drift of all", "host", Event(30, 1.12, ramp=25))


def _environment(plant: Callable[..., None]) -> None:
    for at, factor in ((30, 1.08), (50, 1.15), (40, 0.9)):
        plant("environment, a package", "host", Event(at, factor, packages=True))
    plant("environment, a package of one workload", "host", Event(45, 1.1, "ranker", packages=True))
    plant("environment, a package with operators", "host", Event(45, 1.1, packages=True, operators=4))
    plant("environment, a package on two machines", "host", Event(35, 1.1, packages=True), machines=2, versions=70)


def _noise(plant: Callable[..., None]) -> None:
    for noise in (0.012, 0.03, 0.05):
        plant(f"noise of {noise:.1%}", "none", noise=noise)
    plant("noise, a spell of three versions", "noise", Event(40, 1.06, "encoder", until=43))
    plant("noise of two machines", "none", machines=2, versions=70)
    plant("noise over many versions", "none", versions=160)


def _testbeds(plant: Callable[..., None]) -> None:
    for at, begin in ((25, 50), (40, 55)):
        plant("testbed, open before", "code", Event(at, 1.1, "encoder"), is_open=[at], testbeds=(begin,), versions=90)
    plant("testbed, open count before", "code", Event(30, 1.0, "encoder", operators=3), is_open=[30], testbeds=(50,),
          versions=90)  # fmt: skip
    plant("testbed, open before, no bridge", "code", Event(25, 1.1, "ranker"), is_open=[25], testbeds=(45,),
          versions=90, bridged=False)  # fmt: skip
    plant("testbed, reverted before", "code", Event(20, 1.1, "encoder", until=35), testbeds=(50,), versions=90)
    plant("testbed, reverted after", "code", Event(25, 1.1, "encoder", until=70), testbeds=(45,), versions=90)
    plant("testbed, count reverted with it", "code", Event(25, 1.0, "encoder", until=50, operators=3), testbeds=(50,),
          versions=90)  # fmt: skip
    plant("testbed, open after", "code", Event(70, 1.1, "encoder"), is_open=[70], testbeds=(40,), versions=90)
    plant("testbed twice, open before both", "code", Event(20, 1.12, "encoder"), is_open=[20], testbeds=(40, 65),
          versions=90)  # fmt: skip
    plant("testbed, open before and after", "code", Event(20, 1.1, "encoder"), Event(70, 1.08, "ranker"),
          is_open=[20, 70], testbeds=(45,), versions=90)  # fmt: skip


HISTORIES = _histories()


def _further() -> list[PlantedHistory]:
    """Movements that are close together, for the limits of what origins can tell."""
    garden = _Garden()
    garden.plant("two workloads, five versions apart", "code", Event(40, 1.08, "encoder"), Event(45, 1.08, "ranker"),
                 is_open=[40, 45])  # fmt: skip
    garden.plant("two workloads, two versions apart", "code", Event(40, 1.12, "encoder"), Event(42, 1.1, "ranker"),
                 is_open=[40, 42])  # fmt: skip
    garden.plant("one workload twice, eight versions apart", "code", Event(40, 1.06, "encoder"),
                 Event(48, 1.06, "encoder"), is_open=[40, 48])  # fmt: skip
    garden.plant("a package two versions later", "code", Event(40, 1.1, "encoder"), Event(42, 1.0, packages=True),
                 is_open=[40])  # fmt: skip
    garden.plant("a slower host before", "code", Event(30, 1.08), Event(50, 1.08, "encoder"), is_open=[50])
    return garden.histories


FURTHER = _further()


def redrawn(history: PlantedHistory, draw: int) -> PlantedHistory:
    """The same planted movements in other noise."""
    return replace(history, seed=history.seed + 100 * draw)
