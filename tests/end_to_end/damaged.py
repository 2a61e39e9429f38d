"""Damaged documents through ``perfgate gate`` and ``perfgate publish --dry-run``: each ends with a verdict or a refusal.

``python -m tests.end_to_end.damaged --count 100000`` runs many in this process and prints each that crashed, takes too long, or
lets a verdict get better although something was only taken away.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import signal
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from rich.console import Console

from perfgate.document.coverage import ChangedFunction, Coverage
from perfgate.document.decision import Policy
from perfgate.document.files import canonical_bytes
from perfgate.document.history import Acceptance, History
from perfgate.document.job import CalledFunction, JobProfile, ProfiledLine, ProfiledOperator
from perfgate.document.run import CodeChange, RunDocument
from perfgate.errors import PerfgateError
from perfgate.flows.gate import judge_again
from perfgate.judging.gate.decide import decide
from perfgate.judging.report.render.terminal import render_terminal
from tests.end_to_end.mutation import Documents, Mutation, mutated
from tests.end_to_end.test_left_out import Check, Judge, function_checks, improved, is_forged_removal, job_checks
from tests.fakes.documents import partial_coverage
from tests.fakes.records import changed

SECONDS = 20
_FILES = {"base": "base/run.json", "head": "head/run.json", "decision": "decision.json", "history": "history.json"}


class Outcome(NamedTuple):
    """What a command made of damaged documents: its verdict or ``refused``, and what is wrong with that."""

    command: str
    result: str
    wrong: str | None


class DamagedChecks:
    """Checks whose documents are damaged one way after the other, in a folder of its own."""

    def __init__(self, folder: Path, checks: dict[str, Check]) -> None:
        self._checks = checks
        self._judges: dict[str, Judge] = {}
        # The verdicts on the undamaged documents.
        self._whole: dict[tuple[str, str], str] = {}
        self.documents: dict[str, Documents] = {}
        for number, (name, check) in enumerate(checks.items()):
            place = folder / str(number)
            place.mkdir(parents=True)
            self._judges[name] = Judge(place, check)
            self.documents[name] = _documents(check, self._judges[name].values)

    def draw(self, seed: str) -> tuple[str, Mutation]:
        """Damage the documents of one of the checks, as the seed says."""
        lot = random.Random(seed)
        name = lot.choice(sorted(self._checks))
        return name, mutated(self.documents[name], list(self.documents.values()), lot)

    def outcome(self, seed: str) -> Outcome:
        name, mutation = self.draw(seed)
        command = "gate" if random.Random(f"{seed}/command").random() < 0.4 else "publish"
        # CPU time: a busy machine is no endless loop.
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            result = self.judge(command, name, mutation)
        except Exception as error:  # noqa: BLE001 - reported with what caused it
            place = traceback.extract_tb(error.__traceback__)[-1]
            wrong = f"{type(error).__name__}: {str(error)[:200]} at {place.filename}:{place.lineno}"
            return Outcome(command, "crash", f"{seed}, {name}: {'; '.join(mutation.done)}: {wrong}")
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        if not _takes_evidence(command, mutation) or result == "refused":
            return Outcome(command, result, None)
        before = self._verdict_on_whole(command, name)
        if improved(before, result) and not any(map(is_forged_removal, mutation.done)):
            return Outcome(command, result, f"{seed}, {name}: {'; '.join(mutation.done)}: {result} instead of {before}")
        return Outcome(command, result, None)

    def _verdict_on_whole(self, command: str, name: str) -> str:
        if (command, name) not in self._whole:
            texts = {document: json.dumps(value).encode() for document, value in self.documents[name].items()}
            self._whole[command, name] = self.judge(command, name, Mutation(texts, [], is_removal=True))
        return self._whole[command, name]

    def judge(self, command: str, name: str, mutation: Mutation) -> str:
        """The verdict of a command on damaged documents of a check, or ``refused``."""
        folder = self.write(name, mutation)
        if command == "publish":
            return self._judges[name].decision().verdict
        try:
            decision = judge_again(folder, policy=None, out=None, language="en")
        except PerfgateError:
            return "refused"
        render_terminal(decision, Console(file=io.StringIO(), width=100), "en")
        return decision.verdict

    def root_of(self, name: str) -> Path:
        """The folder of a check's perfgate.toml."""
        return self._judges[name].root

    def write(self, name: str, mutation: Mutation) -> Path:
        """Put damaged documents into the check's folder."""
        folder = self._judges[name].artifact
        for document, text in mutation.texts.items():
            (folder / _FILES[document]).write_bytes(text)
        return folder


def _documents(check: Check, runs: dict[str, Any]) -> Documents:
    accepted = Acceptance(
        metric="latency.p50", commit="0" * 40, accepted_by="someone", accepted_at="2026-01-01T00:00:00Z", reason="meant"
    )
    history = History(accepted=[accepted])
    decision = decide(check.base, check.head, policy=Policy(looks=[12]), history=history)
    return {
        **runs,
        "decision": json.loads(canonical_bytes(decision, name="decision")),
        "history": msgspec.to_builtins(history),
    }


def _takes_evidence(command: str, mutation: Mutation) -> bool:
    """Whether only measurements are gone: the policy and the history of a folder are its owner's."""
    of_runs = all(done.endswith(("of base", "of head", "of base and head")) for done in mutation.done)
    return mutation.is_removal and (of_runs or command == "publish")


def all_checks() -> dict[str, Check]:
    jobs = job_checks()
    functions = function_checks()
    return {
        **functions,
        **jobs,
        "command with profiles": _profiled(jobs["command"]),
        "measured in part": _covered(functions["FAIL by time"]),
        "not measured": _unmeasured(functions["PASS"]),
    }


def _covered(check: Check) -> Check:
    """The check of a change of which a part was measured."""
    return check._replace(head=changed(check.head, coverage=partial_coverage()))


def _unmeasured(check: Check) -> Check:
    """The check of a change whose code no workload runs."""
    decode = ChangedFunction(line="decoder.py:2", function="decode", executed="no")
    coverage = Coverage(files=["decoder.py"], functions=[decode], calls=5000, nearest=["tests/test_decoder.py::test"])
    nothing: dict[str, Any] = {"workloads": [], "steps": [], "counters": [], "correctness": [], "replicates": []}
    base = changed(check.base, **nothing)
    return Check(base, changed(check.head, coverage=coverage, **nothing), "SKIPPED")


def _profiled(check: Check) -> Check:
    """The check of a job with a profile of both sides, whose function takes longer in the head."""

    def with_profile(run: RunDocument, cpu: float) -> RunDocument:
        (job,) = run.jobs.records
        place = {"function": "Model.forward", "line": "model.py:18"}
        line = ProfiledLine(**place, cpu=cpu, waited=0.0, samples=400, code="x = self.layers(x)")
        operator = ProfiledOperator(name="aten::mm", **place, calls=4, seconds=cpu / 2, spread=1e-6)
        called = CalledFunction(name="Model.forward", file="model.py", first=12, last=20, callers=["serve.py:5"])
        profile = JobProfile(
            workload=job.name,
            per="run",
            units=10,
            seconds=2 * cpu,
            cpu=cpu,
            lines=[line],
            functions=[called],
            operators=[operator],
            operator_units=10,
        )
        changes = [CodeChange(file="model.py", first=18, last=18, function="forward", begins=12, ends=20)]
        source = msgspec.structs.replace(run.source, changes=changes if run.side == "head" else [])
        return changed(run, profiles=[profile], source=source)

    return check._replace(base=with_profile(check.base, 0.1), head=with_profile(check.head, 0.2))


def _stop(_signal: int, _frame: object) -> None:
    raise TimeoutError(f"no end after {SECONDS} s")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    signal.signal(signal.SIGPROF, _stop)
    found: Counter[str] = Counter()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        checks = DamagedChecks(Path(folder), all_checks())
        for number in range(arguments.first, arguments.first + arguments.count):
            outcome = checks.outcome(str(number))
            found[f"{outcome.command} {outcome.result}"] += 1
            if outcome.wrong:
                print(outcome.wrong, flush=True)
            if number % 1000 == 999:
                print(number + 1, round(time.monotonic() - began), dict(sorted(found.items())), flush=True)
    print(dict(sorted(found.items())))


if __name__ == "__main__":
    main()
