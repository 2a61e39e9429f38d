"""Several testbeds judge one change: their artifacts become one comment, one status and one verdict."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from perfgate.document.history import GateRecord
from perfgate.judging.forge.comment import read_state
from perfgate.judging.gate.verdict import joint_verdict
from perfgate.judging.store.store import StorePlace, open_location
from tests.end_to_end.publishing import CONFIG, MARKER, Job
from tests.fakes.forge import BOT, Reply
from tests.unit.forge.test_runner import outputs_of

NAMES = ("910b", "a3", "cpu-x86")
TESTBEDS = '[testbeds]\n910b = "cpu"\na3 = "cpu"\n"cpu-x86" = "cpu"\n'


@pytest.fixture
def root(github: Job, tmp_path: Path) -> Path:
    """A checkout of the base whose perfgate.toml names three testbeds."""
    checkout = tmp_path / "checkout"
    shutil.copytree(github.root, checkout)
    (checkout / "perfgate.toml").write_text(CONFIG + TESTBEDS)
    return checkout


def measure(job: Job, **ops: int) -> None:
    for name in NAMES:
        job.measure(testbed=name, ops=ops.get(name.replace("-", "_"), 40))


def test_publish__three_testbeds_pass__one_comment_with_three_columns_and_one_status(github: Job, root: Path) -> None:
    measure(github)
    out = github.folder / "judged"
    github.environ["GITHUB_OUTPUT"] = str(github.folder / "outputs")
    done = github.publish(root=root, out=out, outputs=True)
    assert done.returncode == 0, done.stderr
    body = github.comment()
    assert body.splitlines()[0] == MARKER
    assert "## ✅ perfgate: PASS – on all 3 testbeds" in body
    assert "| | 910b | a3 | cpu-x86 |" in body
    assert github.statuses() == [(github.project.head, "success")]
    assert outputs_of((github.folder / "outputs").read_text()) == {"verdict": "PASS", "exit-code": "0"}
    joint = json.loads((out / "joint.json").read_text())
    assert (joint["schema"], joint["verdict"], joint["exit_code"]) == ("perfgate/joint-decision", "PASS", 0)
    assert [(one["testbed"], one["device"], one["verdict"]) for one in joint["testbeds"]] == [
        (name, "cpu", "PASS") for name in NAMES
    ]
    for one in joint["testbeds"]:
        assert json.loads((out / one["decision"]).read_text())["verdict"] == "PASS"
        assert (out / one["testbed"] / "report.html").is_file()
    assert (out / "comment.md").read_text().splitlines()[2:] == body.splitlines()[3:]


def test_publish__one_of_three_testbeds_fails__its_headline_stands_first_and_the_comment_of_each_is_folded(
    github: Job, root: Path
) -> None:
    measure(github, a3=64)
    done = github.publish(root=root)
    assert done.returncode == 1, done.stderr
    body = github.comment()
    assert "## ❌ perfgate: FAIL – on 1 of 3 testbeds: a3" in body
    assert "\n- **a3**: FAIL – " in body
    assert "<summary>✅ 910b: PASS</summary>" in body
    assert github.fake.statuses[0].description == "FAIL – on 1 of 3 testbeds: a3"
    state = read_state(body)
    assert state is not None
    assert (state.verdict, state.accepts) == ("FAIL", [])


@pytest.mark.parametrize("how", ["nothing", "without documents", "cancelled", "damaged"])
def test_publish__a_testbed_left_nothing__is_named_and_inconclusive(github: Job, root: Path, how: str) -> None:
    measure(github)
    shutil.rmtree(github.artifact / "a3")
    if how == "without documents":  # an unfit machine, on which nothing was measured
        (github.artifact / "a3" / "logs").mkdir(parents=True)
    elif how == "damaged":
        (github.artifact / "a3.zip").write_bytes(b"PK\x03\x04 hostile")
    elif how == "cancelled":
        github.environ["PERFGATE_MEASURED"] = "cancelled"
    done = github.publish(root=root)
    assert done.returncode == 3, done.stderr
    body = github.comment()
    assert "## ❔ perfgate: INCONCLUSIVE – on 1 of 3 testbeds: a3" in body
    assert "\n- **a3**: INCONCLUSIVE – the measuring job left no usable results" in body
    assert ("was cancelled or exceeded its time limit" in body) == (how == "cancelled")
    assert str(github.folder) not in body
    assert github.statuses() == [(github.project.head, "error")]


def test_publish__a_failing_testbed_and_a_missing_one__the_failure_is_the_verdict(github: Job, root: Path) -> None:
    measure(github, a3=64)
    shutil.rmtree(github.artifact / "910b")
    assert github.publish(root=root).returncode == 1
    assert "FAIL – on 1 of 3 testbeds: a3" in github.comment()
    assert "- **910b**: INCONCLUSIVE" in github.comment()


def test_publish__one_measurement_for_two_testbeds__neither_is_believed(github: Job, root: Path) -> None:
    measure(github, a3=64)
    shutil.rmtree(github.artifact / "a3")
    shutil.copytree(github.artifact / "910b", github.artifact / "a3")
    assert github.publish(root=root).returncode == 3
    assert "INCONCLUSIVE – on 2 of 3 testbeds: 910b, a3" in github.comment()
    assert github.comment().count("it also has measurements of another testbed") == 2


def test_publish__another_device_than_expected__is_not_believed(github: Job, root: Path) -> None:
    measure(github)
    (root / "perfgate.toml").write_text(CONFIG + TESTBEDS.replace('a3 = "cpu"', 'a3 = "npu"'))
    assert github.publish(root=root).returncode == 3
    assert "INCONCLUSIVE – on 1 of 3 testbeds: a3" in github.comment()
    assert "it was measured on the device cpu" in github.comment()


def test_publish__artifact_of_a_testbed_is_of_another_head__is_not_believed(github: Job, root: Path) -> None:
    measure(github)
    github.measure(testbed="a3", commit=github.project.newer)
    assert github.publish(root=root).returncode == 3
    assert "INCONCLUSIVE – on 1 of 3 testbeds: a3" in github.comment()


def test_publish__names_in_the_call__only_add_to_those_of_perfgate_toml(github: Job, root: Path) -> None:
    measure(github)
    assert github.publish(root=root, testbeds=("910b", "extra")).returncode == 3
    assert "| | 910b | a3 | cpu-x86 | extra |" in github.comment()
    assert "INCONCLUSIVE – on 1 of 4 testbeds: extra" in github.comment()


def test_publish__uploaded_artifacts__are_found_by_the_names_of_their_testbeds(github: Job) -> None:
    measure(github, cpu_x86=64)
    for name in NAMES[:2]:
        github.fake.upload(50, f"perfgate-default-{name}-1", github.zipped(testbed=name))
    done = github.download(testbeds=NAMES)
    assert done.returncode == 3, done.stderr
    assert "INCONCLUSIVE – on 1 of 3 testbeds: cpu-x86" in github.comment()
    github.fake.upload(50, "perfgate-default-cpu-x86-1", github.zipped(testbed="cpu-x86"))
    assert github.download(testbeds=NAMES).returncode == 1
    assert "FAIL – on 1 of 3 testbeds: cpu-x86" in github.comments()[0]


def test_publish__status_refused__one_note_in_the_joint_comment(github: Job, root: Path) -> None:
    measure(github)
    github.fake.script("POST", Reply(403, {"message": "Resource not accessible by integration"}))
    github.fake.write(7, f"{MARKER}\nours already, so that the first POST is the status", BOT)
    assert github.publish(root=root).returncode == 0
    assert github.comments()[0].count("the forge refused the commit status") == 1
    assert "PASS – on all 3 testbeds" in github.comments()[0]


def test_publish__record__the_verdict_of_each_testbed_is_kept(github: Job, root: Path) -> None:
    measure(github, a3=64)
    store = open_location(github.environ["PERFGATE_STORE"], StorePlace(root, github.environ))
    assert github.publish(root=root).returncode == 1
    assert store.entries("model", GateRecord) == []
    assert github.publish(root=root, record=True, dry_run=True).returncode == 1
    assert store.entries("model", GateRecord) == []  # a folder is judged without the forge, which says whose head it is
    for name in NAMES:
        github.fake.upload(50, f"perfgate-default-{name}-1", github.zipped(testbed=name))
    comments = github.comments()
    done = github.download(root=root, record=True, dry_run=True)
    assert done.returncode == 1
    assert "The verdict was kept for `perfgate trend`." in done.stdout
    assert github.comments() == comments
    kept = {one.testbed: (one.verdict, one.change, one.commit) for one in store.entries("model", GateRecord)}
    head = github.project.head
    assert kept == {"910b": ("PASS", 7, head), "a3": ("FAIL", 7, head), "cpu-x86": ("PASS", 7, head)}
    job = f"{github.environ['GITHUB_SERVER_URL']}/team/model/actions/runs/50/attempts/1"
    assert {one.link for one in store.entries("model", GateRecord)} == {job}


def test_publish__record_and_the_store_refuses__the_verdict_stands(github: Job, root: Path) -> None:
    measure(github, a3=64)
    github.environ["PERFGATE_STORE"] = str(github.folder)
    done = github.publish(root=root, record=True)
    assert done.returncode == 1
    assert "The verdict was not kept for `perfgate trend`: the store" in done.stdout
    assert "FAIL – on 1 of 3 testbeds: a3" in github.comment()


@pytest.mark.parametrize("name", ["judged", "a/b", "..", "", "x" * 41, "a b"])
def test_publish__name_that_is_no_part_of_an_artifacts_name__wrong_use(github: Job, name: str) -> None:
    done = github.publish(testbeds=(name,))
    assert done.returncode == 2
    assert "--testbed" in done.stderr
    assert github.fake.calls == []


@pytest.mark.parametrize(
    ("verdicts", "joint"),
    [
        (["PASS", "PASS"], "PASS"),
        (["SKIPPED", "SKIPPED"], "SKIPPED"),
        (["PASS", "SKIPPED"], "PASS"),
        (["PASS", "WARN"], "WARN"),
        (["WARN", "INCONCLUSIVE", "PASS"], "INCONCLUSIVE"),
        (["INCONCLUSIVE", "FAIL"], "FAIL"),
    ],
)
def test_joint_verdict__of_several__the_worst(verdicts: list[str], joint: str) -> None:
    assert joint_verdict(verdicts) == joint  # type: ignore[arg-type]
