"""Damaged documents never crash the commands that judge, and a verdict does not get better by what is taken away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.command import run_perfgate
from tests.end_to_end.damaged import DamagedChecks, all_checks
from tests.end_to_end.mutation import Mutation
from tests.end_to_end.test_left_out import function_checks

FEW, MANY, COMMANDS = 20, 3000, 100


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> DamagedChecks:
    return DamagedChecks(tmp_path_factory.mktemp("damaged"), all_checks())


def wrong_of(damaged: DamagedChecks, seeds: range) -> list[str]:
    outcomes = [damaged.outcome(str(seed)) for seed in seeds]
    return [outcome.wrong for outcome in outcomes if outcome.wrong]


def test_judging__some_damaged_documents__no_crash_and_no_better_verdict(damaged: DamagedChecks) -> None:
    wrong = wrong_of(damaged, range(FEW))
    assert not wrong, "\n".join(wrong)


@pytest.mark.omission
@pytest.mark.parametrize("part", range(8))
def test_judging__many_damaged_documents__no_crash_and_no_better_verdict(damaged: DamagedChecks, part: int) -> None:
    first = FEW + part * MANY
    wrong = wrong_of(damaged, range(first, first + MANY))
    assert not wrong, "\n".join(wrong)


@pytest.mark.omission
@pytest.mark.parametrize("command", ["gate", "publish"])
def test_command__damaged_documents__exit_code_of_a_verdict_or_of_bad_input(
    damaged: DamagedChecks, command: str
) -> None:
    wrong = []
    for seed in range(COMMANDS):
        name, mutation = damaged.draw(f"command {seed}")
        folder = damaged.write(name, mutation)
        arguments = ["gate", str(folder)] if command == "gate" else ["publish", str(folder), "--dry-run"]
        ended = run_perfgate(*arguments, cwd=damaged.root_of(name))
        if ended.returncode not in range(5):
            wrong.append(f"{seed}: {ended.returncode}: {ended.stderr[-500:]}")
    assert not wrong, "\n".join(wrong)


def test_judging__turns_of_a_quad_that_no_job_reaches__refused_at_once(damaged: DamagedChecks) -> None:
    name = "ranks by time"
    documents: dict[str, Any] = json.loads(json.dumps(damaged.documents[name]))
    documents["head"]["jobs"]["turns"][-1]["quad"] = 2**40
    texts = {document: json.dumps(value).encode() for document, value in documents.items()}
    damage = Mutation(texts, [], is_removal=False)
    assert damaged.judge("gate", name, damage) == "refused"
    assert damaged.judge("publish", name, damage) == "INCONCLUSIVE"


@pytest.mark.parametrize(("command", "offset"), [("gate", 1000), ("publish", 1)])
def test_judging__sides_share_no_quad_or_some__inconclusive(tmp_path: Path, command: str, offset: int) -> None:
    checks = {name: check for name, check in function_checks().items() if name in ("PASS", "FAIL by time")}
    damaged = DamagedChecks(tmp_path, checks)
    for name in checks:
        documents: dict[str, Any] = json.loads(json.dumps(damaged.documents[name]))
        for replicate in documents["head"]["pairs"]["replicates"]:
            for columns in replicate["shapes"].values():
                columns["quad"] = [quad + offset for quad in columns["quad"]]
        texts = {document: json.dumps(value).encode() for document, value in documents.items()}
        assert damaged.judge(command, name, Mutation(texts, [], is_removal=False)) == "INCONCLUSIVE"
