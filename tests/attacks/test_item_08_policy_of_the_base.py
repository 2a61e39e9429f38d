"""Item 8: tolerances, history and acceptances are the project's own; a change of what judges it is flagged."""

from __future__ import annotations

import re
from dataclasses import replace

import cmarkgfm
import pytest

from perfgate.config import load_config
from perfgate.document.history import Acceptance
from perfgate.judging.forge.hosts import github as hosts_github
from perfgate.judging.store.store import StorePlace, open_location
from tests.end_to_end.publishing import CONFIG, Job
from tests.fakes.forge import Account, Call, FakeForge, Reply

LAX = CONFIG + '[gate]\ntolerance = { "counters.syncs" = 9.0, "ops.count:*" = 9.0 }\n'
OURS = "perfgate's default tolerances"


def _change(job: Job, **fields: object) -> None:
    job.fake.changes[0] = replace(job.fake.changes[0], **fields)  # type: ignore[arg-type]


def _base(job: Job, **files: str | None) -> str:
    """Give the change another base, with other files, and measure against it."""
    project = job.project
    base = project.commit(project.base, **files)
    head = project.git("commit-tree", f"{project.head}^{{tree}}", "-p", base, "-m", "head")
    job.environ["GITHUB_SHA"] = head
    job.event({"number": 7, "pull_request": {"number": 7, "head": {"sha": head, "repo": None}}})
    _change(job, base_sha=base, head_sha=head, merge_sha=None)
    job.project = project._replace(base=base, head=head, merge=head)
    job.measure(ops=64)
    return base


def test_item_8__change_loosens_its_own_gate__the_bases_counts_and_the_edit_is_flagged(github: Job) -> None:
    project = github.project
    head = project.commit(project.base, perfgate__toml=LAX)
    github.event({"number": 7, "pull_request": {"number": 7, "head": {"sha": head, "repo": None}}})
    github.environ["GITHUB_SHA"] = head
    _change(github, head_sha=head, merge_sha=None, files=("perfgate.toml", ".github/workflows/perfgate.yml", "a.py"))
    github.project = project._replace(head=head, merge=head)
    github.measure(ops=64)
    assert github.publish().returncode == 1
    assert (
        "edits files that define its measurement (`perfgate.toml`, `.github/workflows/perfgate.yml`)"
        in github.comment()
    )


@pytest.mark.parametrize(
    "file", ["perf/workload.py", ".gitlab-ci.yml", "ci/gate.gitlab-ci.yml", ".github/actions/x/action.yml"]
)
def test_item_8__change_of_the_workload_or_the_ci__is_flagged(job: Job, file: str) -> None:
    _change(job, files=(file, "model.py"))
    job.measure()
    assert job.publish().returncode == 0
    assert f"define its measurement (`{file}`)" in job.comment()


def test_item_8__hostile_name_of_a_changed_file__commands_nothing(github: Job) -> None:
    _change(github, files=(".github/workflows/@team](http://x.example)\n/approve <b>|`.yml",))
    github.measure()
    assert github.publish().returncode == 0
    (note,) = [line for line in github.comment().splitlines() if "define its measurement" in line]
    page = cmarkgfm.github_flavored_markdown_to_html(note)
    assert "x.example" in page
    assert not re.findall(r"<(?:a|b)\b", page)
    assert "@" not in re.sub(r"<code>.*?</code>", "", page)
    assert not any(line.lstrip().startswith("/approve") for line in github.comment().splitlines())


def _bury(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the list of the change's files end before the one that counts."""
    monkeypatch.setattr(hosts_github, "MOST_FILES", 150)
    _change(job, files=(*(f"docs/{number:03}.md" for number in range(150)), "model.py"), listed=150)


def test_item_8__list_of_files_that_the_forge_cuts__does_not_hide_the_one_that_counts(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing was measured, and every file that is listed is one that nothing depends on.
    _bury(job, monkeypatch)
    outside = job.folder / "outside"
    outside.mkdir()
    assert job.publish(root=outside).returncode == 3
    assert "success" not in [state for _, state in job.statuses()]
    assert "the list of files that this change edits is unknown" in job.comment()


def test_item_8__list_of_files_that_the_forge_cuts__the_clone_knows_them_all(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    _bury(job, monkeypatch)
    job.measure()
    assert job.publish().returncode == 0
    assert "files that this change edits" not in job.comment()


def test_item_8__the_base_allows_it__passes(github: Job) -> None:
    _base(github, perfgate__toml=LAX)
    assert github.publish().returncode == 0


@pytest.mark.parametrize(
    ("files", "words"),
    [({"perfgate.toml": None}, "has no `perfgate.toml`"), ({"perfgate__toml": "["}, "cannot be read")],
)
def test_item_8__the_base_has_none_that_can_be_read__perfgates_own_tolerances(
    github: Job, files: dict[str, str | None], words: str
) -> None:
    _base(github, **files)
    assert github.publish().returncode == 1
    assert OURS in github.comment()
    assert words in github.comment()


TWO = 'project = "model"\n[workloads]\nencoder = "perf/workload.py:encoder"\ndecoder = "perf/workload.py:decoder"\n'


def test_item_8__change_stops_measuring_what_the_base_names__is_said(github: Job) -> None:
    _base(github, perfgate__toml=TWO)
    left_out = "`decoder` was not measured, although the base's perfgate.toml requires it"
    github.measure()
    assert github.publish().returncode == 3
    assert f"INCONCLUSIVE – {left_out}" in github.comment()
    # Who asks for one workload knows.
    assert github.publish(workload="encoder").returncode == 0
    assert left_out not in github.comments()[1]


def test_item_8__outside_a_clone__the_base_is_fetched(job: Job) -> None:
    job.measure(ops=64)
    outside = job.folder / "outside"
    outside.mkdir()
    assert job.publish(root=outside).returncode == 1
    assert OURS not in job.comment()
    assert job.paths("POST").count("/team/model.git/git-upload-pack") >= 1


def test_item_8__the_base_cannot_be_fetched__no_verdict(job: Job) -> None:
    job.measure()
    outside = job.folder / "outside"
    outside.mkdir()
    job.fake.repository, known = None, job.fake.repository
    done = job.publish(root=outside)
    job.fake.repository = known
    assert done.returncode == 3
    assert "`perfgate.toml` of the base cannot be read" in job.comment()
    assert str(job.folder) not in job.comment()


def test_item_8__accepted_in_our_own_store__counts_for_the_merge_that_was_measured(job: Job) -> None:
    job.measure(ops=64)
    assert job.publish(dry_run=True).returncode == 1
    store = open_location(job.environ["PERFGATE_STORE"], StorePlace(job.root, job.environ, None))
    meant = Acceptance(
        commit=job.project.head, metric="*", reason="a new layer", accepted_by="ann", accepted_at="2026-11-20T10:00:00Z"
    )
    store.append(load_config(job.root).project, [meant])
    assert job.publish().returncode == 0
    assert "a new layer" in job.comment()


def test_item_8__store_that_cannot_be_read__is_said_and_its_place_is_not(job: Job) -> None:
    broken = job.folder / "secret-place.db"
    broken.write_bytes(b"no database" * 100)
    job.environ["PERFGATE_STORE"] = str(broken)
    job.measure()
    done = job.publish()
    assert done.returncode == 0
    assert "the store could not be read" in job.comment()
    assert "secret-place" not in job.comment()
    assert "secret-place" in done.stdout


def test_item_8__nothing_relevant_changed_and_nothing_measured__skipped_by_the_bases_filter(job: Job) -> None:
    _change(job, files=("azure-pipelines.yml", ".travis.yml"))
    done = job.publish()
    assert done.returncode == 0, done.stderr
    assert " perfgate: SKIPPED" in job.comment()
    assert job.statuses() == job.marked("success")


def test_item_8__documentation_changed_that_no_stored_run_left_unread__not_skipped(job: Job) -> None:
    _change(job, files=("docs/guide.md", "README.md"))
    assert job.publish().returncode == 3
    assert " perfgate: INCONCLUSIVE" in job.comment()


@pytest.mark.parametrize("shown", [{"head_sha": "d" * 40}, {"target": "moved"}], ids=["head", "target"])
def test_item_8__harmless_change_shown_while_the_files_are_asked_for__not_skipped(
    job: Job, shown: dict[str, str]
) -> None:
    _change(job, files=("azure-pipelines.yml",))
    usual = job.fake.dialect.answer

    def answer(forge: FakeForge, call: Call, path: str, account: Account) -> Reply:
        reply = usual(forge, call, path, account)
        if path.endswith(("/files", "/diffs")):
            _change(job, **shown)
        return reply

    job.fake.dialect.answer = answer  # type: ignore[method-assign]
    assert job.publish().returncode == 3
    assert "success" not in [state for _, state in job.statuses()]


def test_item_8__artifact_says_skipped__the_files_decide(job: Job) -> None:
    job.artifact.mkdir()
    (job.artifact / "decision.json").write_text('{"schema": "perfgate/decision", "verdict": "SKIPPED"}')
    assert job.publish().returncode == 3
    assert " perfgate: INCONCLUSIVE" in job.comment()


def test_item_8__publishing__writes_nothing_to_the_store(job: Job) -> None:
    job.measure()
    assert job.publish().returncode == 0
    assert not (job.folder / "store.db").exists()


@pytest.mark.parametrize(("after", "verdict"), [("x = 1  # one\n", "SKIPPED"), ("x = 2\n", "INCONCLUSIVE")])
def test_item_8__nothing_measured__skipped_only_where_the_commits_themselves_have_the_same_code(
    github: Job, after: str, verdict: str
) -> None:
    project = github.project
    base = project.commit(project.base, model__py="x = 1\n")
    head = project.commit(base, model__py=after)
    github.event({"number": 7, "pull_request": {"number": 7, "head": {"sha": head, "repo": None}}})
    github.environ["GITHUB_SHA"] = head
    _change(github, base_sha=base, head_sha=head, merge_sha=None, files=("model.py",))
    github.project = project._replace(base=base, head=head, merge=head)
    github.publish()
    assert f" perfgate: {verdict}" in github.comment()
