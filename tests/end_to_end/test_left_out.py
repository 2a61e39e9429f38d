"""Whatever is left out of a check's artifact, or altered in it, its verdict does not get better, and is always one.

The documents are those of the conductor's own pairing loop on the fake device, and of its turns around programs that take no
time; each is judged and worded as ``perfgate publish`` does it. `make test-omission` tries every kind of place.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from perfgate.document.artifact import CheckDocuments, read_check
from perfgate.document.decision import DecisionDocument
from perfgate.document.files import canonical_bytes, left_out, refuse_misfits
from perfgate.document.message import quote
from perfgate.document.run import (
    CodeChange,
    CorrectnessResult,
    CounterSet,
    CounterSite,
    ErrorDetail,
    FailedPair,
    Harness,
    OpCount,
    RunDocument,
    ShapeKernels,
    StepResult,
    Value,
)
from perfgate.errors import DocumentError
from perfgate.flows.publish.artifacts import ReadArtifact
from perfgate.flows.publish.publish import judge_artifacts
from perfgate.flows.publish.trusted import PublishRequest, read_trusted_inputs
from perfgate.flows.publish.wording import Wording
from perfgate.flows.shared.doors import Doors
from perfgate.judging.forge.detect import detect
from perfgate.judging.store.backends.sql import SqlStore
from perfgate.judging.store.runs import record_run
from tests.end_to_end.omission import Edit, edits
from tests.fakes.jobs import SETTINGS, Does, job_documents
from tests.fakes.records import changed
from tests.traps.virtual import MS, SHAPE, WORKLOAD, VirtualGate, documents_of, works
from tests.wording import worded

replace = msgspec.structs.replace
CONFIG = f"""
project = "demo"
workload = "perf/workload.py:{WORKLOAD}"

[gate]
looks = [12]
checklist_budget = 0
aa_pairs = 7

[budget]
"latency.p50" = "< 1 s"
"""
BADNESS = {"PASS": 0, "SKIPPED": 0, "WARN": 1, "INCONCLUSIVE": 2, "FAIL": 3}
BOOM = ErrorDetail(kind="exception", message="RuntimeError: boom")


class Check(NamedTuple):
    """The documents of one check, the verdict they must give, and the perfgate.toml of the base."""

    base: RunDocument
    head: RunDocument
    verdict: str
    rules: str = ""
    config: str = CONFIG


def counted(clones: int, *, wavering: tuple[str, ...] = (), low: int = 2) -> CounterSet:
    """Return what one call counts: ``clones`` copies, two products of which ``low`` are of low precision."""
    ops = [OpCount(op="aten::mm", count=2), OpCount(op="aten::clone", count=clones)]
    sites = [
        CounterSite(metric="counters.framework_ops", name="aten::mm", count=2, line="model.py:3", code="x @ w"),
        CounterSite(metric="counters.low_precision_ops", name="aten::mm", count=low, line="model.py:3", code="x @ w"),
    ]
    if clones:
        site = CounterSite(
            metric="counters.framework_ops", name="aten::clone", count=clones, line="model.py:4", code="x.clone()"
        )
        sites += [site, replace(site, metric="counters.copies")]
    values = {"counters.framework_ops": 2 + clones, "counters.copies": clones, "counters.low_precision_ops": low}
    return CounterSet(
        workload=WORKLOAD,
        shape=SHAPE,
        repeats=3,
        values=values,
        ops=[op for op in ops if op.count],
        sites=[varying(site, wavering) for site in sites if site.count],
        unstable=list(wavering),
        ranges={name: (values[name] - 1, values[name]) for name in wavering},
        steady=sorted(values.keys() - set(wavering)),
        not_applicable=["counters.graph_breaks", "counters.recompiles"],
        uncounted=["memory.kept_native"],
    )


def varying(site: CounterSite, wavering: tuple[str, ...]) -> CounterSite:
    """Return a site of the product with a range, if its counter wavers."""
    is_varying = site.metric in wavering and site.name == "aten::mm"
    return replace(site, between=(site.count - 1, site.count)) if is_varying else site


def side(
    run: RunDocument, *, clones: int = 0, low: int = 2, wavering: tuple[str, ...] = (), **fields: Any
) -> RunDocument:
    """Return a document of pairs with the checklist of a check beside them."""
    p50 = Value(metric="latency.p50", value=0.001, interval=(0.0009, 0.0011), labels={"shape": SHAPE})
    steps = [
        StepResult(number=1, slug="latency", workload=WORKLOAD, status="ok", values=[p50]),
        StepResult(number=4, slug="top_ops", workload=WORKLOAD, status="ok"),
    ]
    checked = CorrectnessResult(workload=WORKLOAD, shape=SHAPE, status="passed", signature="float32[4]")
    values: dict[str, Any] = {
        "workloads": [replace(run.workloads[0], steps=[1, 4])],
        "steps": steps,
        "correctness": [checked],
        "counters": [counted(clones, low=low, wavering=wavering)],
        **fields,
    }
    return changed(run, **values)


def swept(p50: Value, **rates: tuple[float, ...]) -> list[StepResult]:
    """Return the steps of a check with a budget on throughput: by ``b8=(500, 400)`` of a batch size in each attempt."""
    values = [
        Value(metric="batch.throughput", value=rate, interval=(rate * 0.9, rate * 1.1), labels=labels)
        for size, attempts in rates.items()
        for number, rate in enumerate(attempts, start=1)
        for labels in [{"shape": SHAPE, "batch": size[1:], **({"repeat": str(number)} if number > 1 else {})}]
    ]
    return [
        StepResult(number=1, slug="latency", workload=WORKLOAD, status="ok", values=[p50]),
        StepResult(number=4, slug="top_ops", workload=WORKLOAD, status="ok"),
        StepResult(number=5, slug="batch", workload=WORKLOAD, status="ok", values=values),
    ]


def ran(seconds: float, *names: str) -> StepResult:
    """Return step 4 of traced calls whose longest kernel takes so long."""
    longest = Value(metric="ops.kernel_time", value=seconds, labels={"shape": SHAPE})
    kernels = ShapeKernels(shape=SHAPE, names=sorted(names), longest=names[0])
    return StepResult(number=4, slug="top_ops", workload=WORKLOAD, status="ok", values=[longest], kernels=[kernels])


def promised(run: RunDocument, p99: float) -> RunDocument:
    """Return a side of a workload with an SLA, and its P99."""
    value = Value(metric="latency.p99", value=p99, interval=(p99 * 0.9, p99 * 1.1), labels={"shape": SHAPE})
    steps = [
        replace(step, values=[*step.values, *([value] if step.number == 1 else [])]) for step in run.checklist.steps
    ]
    return changed(run, workloads=[replace(run.workloads[0], sla_p99=0.02)], steps=steps)


def harness(**fields: Any) -> Harness:
    values: dict[str, Any] = {
        "workload": WORKLOAD, "reference": "perf/workload.py:encoder", "file_sha256": "a", "batch": 8,
        "shapes": {SHAPE: "length=512"}, "functions": {"build": "1", "check": "3"}, "sla_p99": None,
    }  # fmt: skip
    return Harness(**{**values, **fields})


@pytest.fixture(scope="module")
def checks() -> dict[str, Check]:
    return function_checks()


def measured_by(gate: VirtualGate) -> tuple[RunDocument, RunDocument]:
    """Return the documents of pairs and of long stretches."""
    measured, _ = gate.measure()
    measured, _ = gate.measure_stretches(measured, quads=0)
    return documents_of(measured)


def function_checks() -> dict[str, Check]:
    """Measure the pairs once: equal code, and a head that is 6 % slower."""
    base, equal = measured_by(VirtualGate(works(MS), works(MS), quads=2))
    _, slower = measured_by(VirtualGate(works(MS), works(MS * 106 // 100), quads=2))
    passed = CorrectnessResult(workload=WORKLOAD, shape=SHAPE, status="passed", signature="float32[4]")
    failed = replace(passed, status="failed")
    first_failed = FailedPair(pair=equal.pairs.replicates[0].pair, arm="ab", workload=WORKLOAD, error=BOOM)
    lost = equal.pairs.replicates[0].pair
    without = [one for one in base.pairs.replicates if one.pair != lost]
    boom = StepResult(number=4, slug="top_ops", workload=WORKLOAD, status="error", reason=quote("boom"), error=BOOM)
    slow = Value(metric="latency.p50", value=2.0, interval=(1.9, 2.1), labels={"shape": SHAPE})
    broken = StepResult(number=1, slug="latency", workload=WORKLOAD, status="ok", values=[slow])
    over = [broken, StepResult(number=4, slug="top_ops", workload=WORKLOAD, status="ok")]
    other = replace(equal.testbed, fingerprint="0" * 64, comparable={**equal.testbed.comparable, "torch": "0"})
    plain = side(base)
    latency = plain.checklist.steps[0]
    (p50,) = latency.values
    kernels = {
        of: side(run, steps=[latency, ran(0.001, "flash_attention", "mm")])
        for of, run in (("base", base), ("head", equal))
    }
    asked = [replace(base.workloads[0], steps=[1, 4, 5])]
    return {
        "PASS": Check(plain, side(equal), "PASS"),
        "FAIL by time": Check(plain, side(slower), "FAIL"),
        "WARN by a counter": Check(plain, side(equal, clones=1), "WARN"),
        "FAIL by the check": Check(plain, side(equal, correctness=[failed]), "FAIL"),
        "FAIL by the signature": Check(
            plain, side(equal, correctness=[replace(passed, signature="float32[5]")]), "FAIL"
        ),
        "FAIL by a budget": Check(plain, side(equal, steps=over), "FAIL"),
        "FAIL by a budget of one batch size": Check(
            side(base, steps=swept(p50, b8=(500,), b16=(500,)), workloads=asked),
            side(equal, steps=swept(p50, b8=(500, 500), b16=(50, 60)), workloads=asked),
            "FAIL",
            '"batch.throughput" = "> 100 items/s"\n',
        ),
        "FAIL by an SLA": Check(promised(plain, 0.01), promised(side(equal), 0.03), "FAIL"),
        "FAIL by a gating limit": Check(
            kernels["base"],
            side(equal, steps=[latency, ran(0.1, "flash_attention", "mm")]),
            "FAIL",
            '[limits]\n"ops.kernel_time.warning" = { value = 0.05, gating = true }\n',
        ),
        "FAIL by an expected kernel": Check(
            kernels["base"],
            side(equal, steps=[latency, ran(0.001, "mm", "softmax")]),
            "FAIL",
            '[expect]\nkernels = ["flash_*"]\n',
        ),
        "PASS by a budget, an SLA, a limit and a kernel": Check(
            promised(
                side(
                    base,
                    steps=[*kernels["base"].checklist.steps, swept(p50, b8=(500,), b16=(400,))[2]],
                    workloads=asked,
                ),
                0.01,
            ),
            promised(
                side(
                    equal,
                    steps=[*kernels["head"].checklist.steps, swept(p50, b8=(500,), b16=(400,))[2]],
                    workloads=asked,
                ),
                0.01,
            ),
            "PASS",
            '"batch.throughput" = "> 100 items/s"\n[limits]\n"ops.kernel_time.warning" = { value = 0.05, gating = true }\n'
            '[expect]\nkernels = ["flash_*"]\n',
        ),
        "WARN by a wavering count": Check(plain, side(equal, wavering=("counters.framework_ops",)), "WARN"),
        "FAIL by full precision": Check(plain, side(equal, low=1), "FAIL"),
        "WARN by the workload file": Check(
            changed(plain, harness=[harness()]),
            side(
                replace(
                    equal, source=replace(equal.source, changes=[CodeChange(file="perf/workload.py", first=3, last=3)])
                ),
                harness=[harness(shapes={SHAPE: "length=64"})],
            ),
            "WARN",
        ),
        "INCONCLUSIVE by a failed pair": Check(
            changed(plain, replicates=without),
            side(changed(equal, replicates=equal.pairs.replicates[1:]), failed=[first_failed]),
            "INCONCLUSIVE",
        ),
        "INCONCLUSIVE by a failed step": Check(
            plain, side(equal, steps=[plain.checklist.steps[0], boom], counters=[]), "INCONCLUSIVE"
        ),
        "INCONCLUSIVE by the testbed": Check(plain, side(replace(slower, testbed=other)), "INCONCLUSIVE"),
    }


NAMES = [
    "PASS",
    "FAIL by time",
    "FAIL by full precision",
    "FAIL by the check",
    "FAIL by the signature",
    "FAIL by a budget",
    "FAIL by a budget of one batch size",
    "FAIL by an SLA",
    "FAIL by a gating limit",
    "FAIL by an expected kernel",
    "PASS by a budget, an SLA, a limit and a kernel",
    "WARN by a wavering count",
    "WARN by a counter",
    "WARN by the workload file",
    "INCONCLUSIVE by a failed pair",
    "INCONCLUSIVE by a failed step",
    "INCONCLUSIVE by the testbed",
]


class Job(NamedTuple):
    """A job that fails: its table in perfgate.toml, and what base and head do."""

    settings: str
    base: Does
    head: Does


ONE_NUMBER = """
[workloads.bench]
command = "python bench.py"
numbers.step = { json = "step", unit = "ms" }
"""
FAILING_JOBS = {
    "command": Job(SETTINGS["command"], Does(), Does(0.2)),
    "command of one number": Job(ONE_NUMBER, Does(), Does(0.2)),
    "server by time": Job(SETTINGS["server"], Does(), Does(0.2)),
    "server by work": Job(SETTINGS["server"], Does(), Does(tokens=5)),
    "server by output": Job(SETTINGS["server"], Does(), Does(text="a b c e")),
    "server by its answers": Job(SETTINGS["server"] + 'same_output = "share"\n', Does(usual=0.9), Does(usual=0.2)),
    "ranks by time": Job(SETTINGS["ranks"], Does(), Does(0.2)),
    "ranks by output": Job(SETTINGS["ranks"], Does(), Does(loss=2.1)),
    "ranks by a collective": Job(SETTINGS["ranks"], Does(), Does(collectives=3)),
}


@pytest.fixture(scope="module")
def jobs() -> dict[str, Check]:
    return job_checks()


def job_checks() -> dict[str, Check]:
    """Let the jobs take their turns once."""
    return {
        name: Check(
            *job_documents(job.settings, job.base, job.head), "FAIL", config=f'project = "demo"\n{job.settings}'
        )
        for name, job in FAILING_JOBS.items()
    }


# Forged measurements that no reader can tell from honest ones: SECURITY.md, and docs/traps.md, "Not caught".
FORGED = {
    # What the head took, or all that base and head took: the samples themselves.
    "turns/*/values/number.step": ("x 0.3", "swapped"),
    # What the checklist of a side measured once, with its interval, and what its check found.
    "steps/*/values/*/value": ("x 0.3", "negative", "0", "1e308", "swapped"),
    "steps/*/values/*/interval/*": ("x 0.3", "negative", "0", "1e308", "swapped"),
    "correctness/*/status": ("swapped",),
    # What the workload file promises, on both sides alike: without a stored run of main, no other document tells.
    "workloads/*/sla_p99": ("emptied", "x 0.3", "negative", "0", "1e308"),
    # Which kernels ran, those of one side told as those of the other.
    "steps/*/kernels/*/names/*": ("swapped",),
}


class Judge:
    """Judges artifacts of one check as publish does where it is given a folder."""

    def __init__(self, folder: Path, check: Check) -> None:
        self.root, self.artifact = folder / "project", folder / "artifact"
        self.root.mkdir()
        (self.root / "perfgate.toml").write_text(check.config + check.rules)
        environ = {"PERFGATE_STORE": str(self.root / "store.db")}
        self._doors = Doors(environ=environ, say=lambda text: None, sleep=lambda seconds: None, clock=lambda: 0.0)
        self.values: dict[str, Any] = {}
        for name, run in (("base", check.base), ("head", check.head)):
            (self.artifact / name).mkdir(parents=True)
            self.values[name] = json.loads(canonical_bytes(run, name=name))
            self.write(name, self.values[name])

    def write(self, name: str, value: Any) -> None:
        (self.artifact / name / "run.json").write_text(json.dumps(value))

    def decision(self) -> DecisionDocument:
        try:
            return self._published(read_check(self.artifact), None)
        except DocumentError as error:
            return self._published(None, error)

    def decision_on(self, values: dict[str, Any]) -> DecisionDocument | None:
        """Judge other documents in this process; None where reading refuses them.

        Their schema, which takes a hundred times longer, refuses no less.
        """
        try:
            runs = [msgspec.convert(values[name], RunDocument) for name in ("base", "head")]
            for run in runs:
                refuse_misfits(run, name="run")
        except (msgspec.ValidationError, DocumentError):
            return None
        if any(left_out(values[name], run) is not None for name, run in zip(("base", "head"), runs)):
            return None
        return self._published(CheckDocuments(*runs), None)

    def _published(self, documents: CheckDocuments | None, refusal: DocumentError | None) -> DecisionDocument:
        """What publish makes of them, with its comment and page. Raises whatever fails."""
        trusted = read_trusted_inputs(self.root, detect(self._doors.environ), self._doors, posts=False)
        wording = Wording(PublishRequest(out=Path()), trusted)
        published = judge_artifacts((ReadArtifact(documents, refusal),), wording, self._doors)
        if published.error is not None:
            raise published.error
        return published.artifacts[0].decision


def improved(before: str, after: str) -> bool:
    return BADNESS[after] < BADNESS[before] and (before, after) != ("FAIL", "INCONCLUSIVE")


def is_forged(edit: Edit) -> bool:
    """Whether an edit is a forgery of what a side measured once, or of what both say alike."""
    is_of_one_side = edit.where in ("base", "head")
    return edit.how in FORGED.get(edit.kind, ()) and (not is_of_one_side or edit.kind.startswith("steps/*/values/"))


def is_forged_removal(done: str) -> bool:
    """Whether a mutation takes from both sides alike what no other document tells."""
    return "workloads/" in done and "sla_p99" in done


def wrong_after(judge: Judge, check: Check, *, each: int, most: float, seed: str) -> tuple[list[str], Counter[str]]:
    """Edit the documents of a check in up to ``most`` ways; return which gave a better verdict or none, and all outcomes.

    Only where the verdict is FAIL something is altered too: an INCONCLUSIVE may rest on a single text, such as a fingerprint.
    """
    whole = judge.decision()
    assert whole.verdict == check.verdict, worded(whole.reasons)
    wrong, outcomes = [], Counter[str]()
    for edit in _tried(judge, check, each=each, seed=seed):
        if outcomes.total() >= most:
            break
        values = edit.of(judge.values)
        if values is None or is_forged(edit):
            continue
        what = "deletion" if edit.is_deletion else "alteration"
        try:
            after = judge.decision_on(values)
        except Exception as error:  # noqa: BLE001 - reported with what caused it
            outcomes[f"{what} crash"] += 1
            wrong.append(f"{edit.name}: {error!r}")
            continue
        verdict = "INCONCLUSIVE" if after is None else after.verdict
        outcomes[f"{what} {verdict}"] += 1
        if after is not None and improved(whole.verdict, verdict):
            wrong.append(f"{edit.name}: {verdict} {worded(after.reasons)}")
    return wrong, outcomes


def _tried(judge: Judge, check: Check, *, each: int, seed: str) -> Iterator[Edit]:
    for edit in edits(judge.values, each=each, seed=seed):
        if check.verdict == "FAIL" or (edit.is_deletion and edit.where in ("base", "head")):
            yield edit


@pytest.mark.parametrize("name", NAMES)
def test_publish__some_edits_of_a_function__no_better_verdict(
    tmp_path: Path, checks: dict[str, Check], name: str
) -> None:
    wrong, _ = wrong_after(Judge(tmp_path, checks[name]), checks[name], each=1, most=6, seed=name)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", FAILING_JOBS)
def test_publish__some_edits_of_a_job__no_better_verdict(tmp_path: Path, jobs: dict[str, Check], name: str) -> None:
    most = math.ceil(60 / sum(other.split()[0] == name.split(maxsplit=1)[0] for other in FAILING_JOBS))
    wrong, _ = wrong_after(Judge(tmp_path, jobs[name]), jobs[name], each=1, most=most, seed=name)
    assert not wrong, "\n".join(wrong)


@pytest.mark.omission
@pytest.mark.parametrize("name", [*NAMES, *FAILING_JOBS])
def test_publish__every_kind_of_edit__no_better_verdict(
    tmp_path: Path,
    checks: dict[str, Check],
    jobs: dict[str, Check],
    name: str,
    record_property: Callable[[str, object], None],
) -> None:
    check = {**checks, **jobs}[name]
    wrong, outcomes = wrong_after(Judge(tmp_path, check), check, each=1, most=math.inf, seed=name)
    record_property("outcomes", dict(sorted(outcomes.items())))
    print(name, dict(sorted(outcomes.items())))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("file", ["base/run.json", "head/run.json"])
@pytest.mark.parametrize("name", ["FAIL by time", "PASS"])
def test_publish__a_file_left_out__inconclusive(tmp_path: Path, checks: dict[str, Check], name: str, file: str) -> None:
    judge = Judge(tmp_path, checks[name])
    (judge.artifact / file).unlink()
    decision = judge.decision()
    assert decision.verdict == "INCONCLUSIVE"
    assert file in worded(decision.reasons)[0]


@pytest.mark.parametrize(
    "field", ["pairs", "pairs.replicates", "pairs.failed", "source.harness", "checklist.steps", "checklist.counters"]
)
def test_publish__a_field_left_out__inconclusive_with_its_name(
    tmp_path: Path, checks: dict[str, Check], field: str
) -> None:
    judge = Judge(tmp_path, checks["FAIL by time"])
    *groups, name = field.split(".")
    del reduce(getitem, groups, judge.values["head"])[name]
    judge.write("head", judge.values["head"])
    decision = judge.decision()
    assert decision.verdict == "INCONCLUSIVE"
    assert f"$.{field}: this field is missing" in worded(decision.reasons)[0]


def test_publish__both_sides_lack_what_mains_stored_run_counted__inconclusive(
    tmp_path: Path, checks: dict[str, Check]
) -> None:
    judge = Judge(tmp_path, checks["WARN by a counter"])
    stored = changed(checks["PASS"].base, side=None, replicates=[])
    record_run(SqlStore(judge.root / "store.db"), stored, allow_dirty=True)
    assert judge.decision().verdict == "WARN"
    for value in judge.values.values():
        (counters,) = value["checklist"]["counters"]
        counters.update(values={}, ops=[], sites=[], steady=[])
    for name, value in judge.values.items():
        judge.write(name, value)
    decision = judge.decision()
    assert decision.verdict == "INCONCLUSIVE"
    assert [(entry.metric, entry.side, entry.named_by) for entry in decision.gaps.missing] == [
        (f"counters.{name}", "both", "store") for name in ("copies", "framework_ops", "low_precision_ops")
    ]
