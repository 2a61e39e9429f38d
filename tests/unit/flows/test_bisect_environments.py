"""A search over environments: real interpreters and launchers, with a gate that reads its answer from inside of them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from perfgate.config import load_config
from perfgate.document.bisection import BisectionDocument, EnvironmentChange
from perfgate.document.decision import DecisionDocument
from perfgate.errors import MeasuringError, UsageError
from perfgate.flows.bisect.bisect import bisect_stack
from perfgate.flows.bisect.environments import states_between
from perfgate.flows.bisect.request import parse_between
from perfgate.flows.bisect.stacks import StackMaker
from perfgate.flows.shared.options import CheckOptions
from perfgate.judging.report.render.bisection import BisectionWords, bisection_code
from tests.fakes.documents import make_counter, make_decision
from tests.unit.flows.test_bisect_commits import Quiet, lock, make_history

__all__ = ["lock"]

# Versions from 1.4 on are slow; 1.3 has no script, and that of 1.5 fails.
VERSIONS = ["1.0", "1.1", "1.2", "1.3", "1.4", "1.5", "1.6", "1.7"]
FAILS = {"1.3": None, "1.5": "false\n"}
ASK = "import os, sys; print(os.environ.get('PLANTED_COST', '100'), *sys.argv[1:])"


@dataclass
class LaunchedGate:
    """Compares the costs that both interpreters tell, exactly."""

    asked: list[CheckOptions] = field(default_factory=list)

    def __call__(self, directory: Path, options: CheckOptions, progress: Quiet) -> DecisionDocument:
        self.asked.append(options)
        base, head = options.base_python, options.head_python
        assert base
        assert head
        costs = [int(_ask(python)) for python in (base, head)]
        counter = make_counter("counters.framework_ops", *costs)
        return make_decision("FAIL" if costs[1] > costs[0] else "PASS", comparing="stack", comparisons=[counter])


def _ask(python: Path, *arguments: str) -> str:
    command = [str(python), "-c", ASK, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project, and beside it a script for each version that makes its environment."""
    for version in VERSIONS:
        script = tmp_path / "toolkit" / version / "set_env.sh"
        script.parent.mkdir(parents=True)
        text = FAILS.get(version, f"export PLANTED_COST={104 if version >= '1.4' else 100}\n")
        if text is not None:
            script.write_text(text)
    return make_history(tmp_path / "clone", 1, 99).root


def bisect(project: Path, gate: LaunchedGate, between: str, lines: str | None) -> BisectionDocument:
    options = CheckOptions(out=project.parent / "out")
    return bisect_stack(project, parse_between(between, lines), options, gate, Quiet())[0]


def test_bisect__versions_with_scripts__slow_one_found_and_those_without_environment_skipped(project: Path) -> None:
    gate = LaunchedGate()
    document = bisect(project, gate, ",".join(VERSIONS), f"source {project.parent}/toolkit/{{}}/set_env.sh")
    assert document.searched.changes[0] == EnvironmentChange(before="1.0", after="1.1")
    assert BisectionWords(document).result == "1.4 is slower and 1.2 is not; those between cannot be tried"
    answers = {document.searched.changes[max(trial.changes)].after: trial for trial in document.tried}
    assert answers["1.3"].answer == "impossible"
    assert "No such file or directory" in (answers["1.3"].reason or "")
    # Both ends first; each gate has the old environment on one side.
    assert (document.tried[0].answer, answers["1.7"].answer) == ("slow", "slow")
    assert len({options.base_python for options in gate.asked}) == 1
    assert all(options.comparing == "stack" for options in gate.asked)
    assert (document.error, bisection_code(document)) == (0.0, 0)


def test_bisect__new_environment_is_as_fast__one_gate(project: Path) -> None:
    gate = LaunchedGate()
    document = bisect(project, gate, "1.0,1.1,1.2", f"source {project.parent}/toolkit/{{}}/set_env.sh")
    assert (document.outcome, len(gate.asked)) == ("none", 1)
    assert BisectionWords(document).result == "1.2 is not slower than 1.0"


@pytest.mark.parametrize("new", ["1.3", "1.5"])
def test_bisect__newest_environment_cannot_be_used__no_gate_and_exit_4(project: Path, new: str) -> None:
    gate = LaunchedGate()
    document = bisect(project, gate, f"1.0,{new}", f"source {project.parent}/toolkit/{{}}/set_env.sh")
    assert (gate.asked, bisection_code(document)) == ([], 4)
    assert BisectionWords(document).result.startswith(f"{new} cannot be measured: ")


def test_bisect__old_environment_cannot_be_used__an_error_and_no_gate(project: Path) -> None:
    gate = LaunchedGate()
    with pytest.raises(MeasuringError, match=r"the old environment 1\.3 cannot be used: .*No such file"):
        bisect(project, gate, "1.3,1.4", f"source {project.parent}/toolkit/{{}}/set_env.sh")
    assert gate.asked == []


def test_bisect__interpreters__their_own_paths(project: Path) -> None:
    pythons = []
    for name, cost in (("old", 100), ("middle", 100), ("new", 104)):
        python = project.parent / name / "python"
        python.parent.mkdir()
        python.write_text(f'#!/bin/sh\nPLANTED_COST={cost} exec {sys.executable} "$@"\n')
        python.chmod(0o755)
        pythons.append(str(python))
    document = bisect(project, LaunchedGate(), ",".join(pythons), None)
    assert BisectionWords(document).result == f"Slower since {pythons[2]}; {pythons[1]} is not"


def test_bisect__interpreter_that_does_not_exist__exit_2_and_its_path(project: Path) -> None:
    with pytest.raises(UsageError, match="--between no/bin/python is not an interpreter"):
        bisect(project, LaunchedGate(), f"{sys.executable},no/bin/python", None)


def test_launcher__lines_that_start_python_themselves__get_its_arguments_as_they_are(project: Path) -> None:
    lines = f'PLANTED_COST={{}} exec {sys.executable} "$@"'
    maker = StackMaker(load_config(project), project, project / "logs", lambda _: None, {})
    states = states_between(maker, parse_between("7,8", lines), project.parent / "launchers")  # type: ignore[arg-type]
    assert _ask(states.make(1), "a b", "$HOME", "*") == "8 a b $HOME *"


def test_launcher__open_file_of_the_parent__stays_open_in_python(project: Path, tmp_path: Path) -> None:
    # A worker talks to perfgate by a socket that it inherits.
    lines = f"source {project.parent}/toolkit/{{}}/set_env.sh"
    maker = StackMaker(load_config(project), project, project / "logs", lambda _: None, {})
    states = states_between(maker, parse_between("1.0,1.1", lines), project.parent / "launchers")  # type: ignore[arg-type]
    with (tmp_path / "told").open("w") as file:
        program = f"import os; os.write({file.fileno()}, b'told')"
        process = subprocess.Popen([str(states.old), "-c", program], pass_fds=[file.fileno()])
        assert process.wait() == 0
    assert (tmp_path / "told").read_text() == "told"
