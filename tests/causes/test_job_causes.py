"""Planted causes of served models and trainings: both sides run and are profiled, and the title names function and line.

The slowdown itself is that of drawn turns: how long it takes to show one is no matter of causes, and depends on the machine.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import msgspec
import pytest

from perfgate.conductor.code.code_changes import code_changes
from perfgate.conductor.machine.cpus import granted_cpus
from perfgate.conductor.sides.kinds import SIDES
from perfgate.conductor.sides.side import SidePlace
from perfgate.conductor.sides.stacks.profiled import profile_of
from perfgate.conductor.sides.stacks.stacks import profiling_environment
from perfgate.config import load_config
from perfgate.document.job import JobProfile, RankCounts
from perfgate.document.run import RunDocument
from perfgate.judging.report.render.comment import CommentContext, render_comment
from tests.causes.comments import title
from tests.causes.job_plants import PLANTS, JobPlant
from tests.fakes.records import changed
from tests.unit.gate.test_turns import NAME, job, judged, runs

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# Titles of PLANTS that may be wrong: stacks are sampled, and what else runs decides when.
_MAY_BE_WRONG = 2


@pytest.mark.slow
def test_title__planted_causes_of_jobs__at_least_eight_of_ten_are_named(tmp_path: Path) -> None:
    titles = {plant.name: title_of(plant, tmp_path / plant.name) for plant in PLANTS}
    right = [plant.name for plant in PLANTS if any(name in titles[plant.name] for name in plant.names)]
    print(f"{len(right)} of {len(PLANTS)} causes are right")
    wrong = {name: said for name, said in titles.items() if name not in right}
    assert len(wrong) <= _MAY_BE_WRONG, wrong


def title_of(plant: JobPlant, folder: Path) -> str:
    """The title of the comment on a plant, from profiles and counts of both sides and a slowdown that is drawn."""
    sides = [folder / side for side in ("base", "head")]
    for side in sides:
        shutil.copytree(HERE / plant.project, side, ignore=shutil.ignore_patterns("__pycache__"))
    planted = sides[1] / plant.file
    before = planted.read_text()
    assert before.count(plant.old) == 1, plant.old
    planted.write_text(before.replace(plant.old, plant.new))
    kind = load_config(sides[0]).jobs[0].kind
    documents = []
    for run, root in zip(runs(0.3, record=job(kind)), sides):
        profile, counts = profiled(root)
        documents.append(_with(run, profile, counts))
    changed = msgspec.structs.replace(documents[1].source, changes=code_changes(*sides, [plant.file]))
    decision = judged(documents[0], msgspec.structs.replace(documents[1], source=changed))
    return title(render_comment(decision, CommentContext(marker="<!-- perfgate -->")))


def profiled(root: Path) -> tuple[JobProfile, tuple[RankCounts, ...]]:
    """The profile of one side that runs alone, and what its ranks called in a step."""
    (reference,) = load_config(root).jobs
    path = [str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = {
        "PATH": os.pathsep.join(path),
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(root),
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    folder = root.with_name(f"{root.name}.profile")
    place = SidePlace(
        root,
        profiling_environment(environment, folder),
        folder.with_suffix(".log"),
        cpus=granted_cpus(),
        harness=root,
    )
    side = SIDES[reference.kind](reference, place)
    try:
        side.start()
        side.warm_up()
        counts = side.turn(0).counts
        stacks = side.profile(1)
    finally:
        side.stop()
    assert stacks is not None
    return profile_of(NAME, stacks, root), counts


def _with(run: RunDocument, profile: JobProfile, counts: tuple[RankCounts, ...]) -> RunDocument:
    """The document with a profile, and what ranks called in the first turn of every start."""
    turns, seen = [], set()
    for turn in run.jobs.turns:
        turns.append(turn if turn.start in seen else msgspec.structs.replace(turn, counts=list(counts)))
        seen.add(turn.start)
    return changed(run, profiles=[profile], turns=turns)
