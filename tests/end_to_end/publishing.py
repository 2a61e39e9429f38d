"""A CI job that publishes: a git repository, a fake forge that knows it, and the artifact a measuring job left."""

from __future__ import annotations

import io
import json
import os
import subprocess
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from perfgate.document.decision import Policy
from perfgate.document.files import canonical_bytes
from perfgate.document.history import History
from perfgate.document.run import (
    Checklist,
    CiContext,
    CorrectnessResult,
    CounterSet,
    MeasuredPairs,
    OpCount,
    RunDocument,
    Session,
    Source,
    WorkloadRecord,
)
from perfgate.document.seal import Seal
from perfgate.document.testbed import Testbed as _Testbed
from perfgate.document.testbed import fingerprint
from perfgate.errors import PerfgateError
from perfgate.flows.publish.publish import publish
from perfgate.flows.publish.trusted import PublishRequest, read_trusted_inputs
from perfgate.flows.shared.doors import Doors
from perfgate.judging.forge.comment import marker
from perfgate.judging.forge.detect import detect
from perfgate.judging.gate.decide import decide
from perfgate.version import __version__
from tests.command import run_perfgate
from tests.fakes.forge import BOT, BOT_TOKEN, FakeForge, StoredChange
from tests.fakes.forge_dialects import GitHubDialect, GitHubEnterpriseDialect, GitLabDialect
from tests.fakes.records import group_of
from tests.unit.gate.builders import pairs_of, stretches_of

MARKER = marker("default")
HOSTS = {"github": GitHubDialect, "gitlab": GitLabDialect, "enterprise": GitHubEnterpriseDialect}
CONFIG = 'project = "model"\nworkload = "perf/workload.py:encoder"\n'
START = 1_800_000_000.0


class Project(NamedTuple):
    """Commits of a repository whose work tree, at ``base``, is the publishing job's checkout.

    ``older`` - ``base`` are main; ``head`` is the change on ``base`` and ``merge`` the forge's merge of it. ``newer`` is where
    main went since on the branch ``moved``, with ``newer_merge`` of the same head into it; ``unrelated`` shares no history.
    """

    root: Path
    older: str
    base: str
    head: str
    merge: str
    newer: str
    newer_merge: str
    unrelated: str

    def git(self, *arguments: str) -> str:
        return _git(self.root, *arguments)

    def commit(self, parent: str, **files: str | None) -> str:
        """Return a new commit on another, with ``perfgate__toml`` for perfgate.toml, None for a file that goes."""
        named = {name.replace("__", "."): text for name, text in files.items()}
        kept = [line for line in self.git("ls-tree", parent).splitlines() if line.partition("\t")[2] not in named]
        blobs = {
            name: _git(self.root, "hash-object", "-w", "--stdin", stdin=text)
            for name, text in named.items()
            if text is not None
        }
        tree = [*kept, *(f"100644 blob {blob}\t{name}" for name, blob in blobs.items())]
        made = _git(self.root, "mktree", stdin="\n".join(tree) + "\n")
        return self.git("commit-tree", made, "-p", parent, "-m", "another")


def _git(root: Path, *arguments: str, stdin: str | None = None) -> str:
    who = {f"GIT_{role}_{what}": "someone" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {**os.environ, **who, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", *arguments], cwd=root, env=environment, input=stdin, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Make the repository once: no test changes its files or branches."""
    root = tmp_path_factory.mktemp("project")
    _git(root, "init", "-q", "-b", "main")
    (root / "model.py").write_text("layers = 1\n")
    (root / "perfgate.toml").write_text(CONFIG)
    commits = {}
    for name in ("older", "base"):
        (root / "model.py").write_text(f"layers = '{name}'\n")
        commits[name] = _commit(root, name)
    head = _on(root, commits["base"], "head")
    merge = _git(root, "commit-tree", f"{head}^{{tree}}", "-p", commits["base"], "-p", head, "-m", "Merge")
    newer = _on(root, commits["base"], "newer")
    newer_merge = _git(root, "commit-tree", f"{newer}^{{tree}}", "-p", newer, "-p", head, "-m", "Merge")
    _git(root, "branch", "moved", newer)
    unrelated = _git(root, "commit-tree", f"{head}^{{tree}}", "-m", "unrelated")
    return Project(
        root,
        older=commits["older"],
        base=commits["base"],
        head=head,
        merge=merge,
        newer=newer,
        newer_merge=newer_merge,
        unrelated=unrelated,
    )


def _commit(root: Path, message: str) -> str:
    _git(root, "add", "--all")
    _git(root, "commit", "-qm", message)
    return _git(root, "rev-parse", "HEAD")


def _on(root: Path, parent: str, message: str) -> str:
    return _git(root, "commit-tree", f"{parent}^{{tree}}", "-p", parent, "-m", message)


@dataclass
class Done:
    """How a publish ended: exit code, what it printed, what it complained of and how long it would have slept."""

    returncode: int
    stdout: str
    stderr: str
    slept: list[float] = field(default_factory=list)


class Job:
    """A CI job of the fake forge: its environment, its event, the check folder it was given."""

    def __init__(self, fake: FakeForge, folder: Path, project: Project) -> None:
        self.fake, self.folder, self.project = fake, folder, project
        self.root = project.root
        self.host = fake.dialect.name  # type: ignore[attr-defined]
        self.artifact = folder / "artifact"
        self.summary = folder / "summary.md"
        self.environ = self._github() if self.host == "github" else self._gitlab()
        self.environ["PERFGATE_STORE"] = str(folder / "store.db")

    def _github(self) -> dict[str, str]:
        self.event({"number": 7, "pull_request": {"number": 7, "head": {"sha": self.project.head, "repo": None}}})
        return {
            "GITHUB_ACTIONS": "true",
            "GITHUB_EVENT_NAME": "pull_request",
            "GITHUB_EVENT_PATH": str(self.folder / "event.json"),
            "GITHUB_REPOSITORY": "team/model",
            "GITHUB_SERVER_URL": self.fake.url,
            "GITHUB_API_URL": self.fake.api_url,
            "GITHUB_RUN_ID": "50",
            "GITHUB_RUN_ATTEMPT": "1",
            "GITHUB_SHA": self.project.merge,
            "GITHUB_STEP_SUMMARY": str(self.summary),
        }

    def _gitlab(self) -> dict[str, str]:
        # A pipeline of a fork: the merge request lives in project 5, not in CI_PROJECT_ID.
        return {
            "GITLAB_CI": "true",
            "CI_SERVER_URL": self.fake.url,
            "CI_API_V4_URL": self.fake.api_url,
            "CI_PROJECT_ID": "99",
            "CI_PROJECT_PATH": "team/model",
            "CI_PIPELINE_ID": "50",
            "CI_PIPELINE_URL": self.fake.url + "/team/model/-/pipelines/50",
            "CI_COMMIT_SHA": self.project.merge,
            "CI_MERGE_REQUEST_IID": "7",
            "CI_MERGE_REQUEST_PROJECT_ID": "5",
            "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA": self.project.head,
        }

    def event(self, payload: dict[str, Any]) -> None:
        (self.folder / "event.json").write_text(json.dumps(payload))

    def workflow_run(self, **changes: Any) -> None:
        """Make the job a messenger: the measuring ran in another workflow run, from a fork."""
        run = {
            "id": 50,
            "run_attempt": 1,
            "head_sha": self.project.head,
            "event": "pull_request",
            "html_url": "https://x.example",
            "head_branch": "feature",
            "head_repository": {"owner": {"login": "mallory"}},
            "pull_requests": [],
        }
        self.event({"workflow_run": {**run, **changes}})
        self.environ |= {
            "GITHUB_EVENT_NAME": "workflow_run",
            "GITHUB_RUN_ID": "77",
            "GITHUB_SHA": self.project.base,
        }

    def rebase(self, settings: str) -> None:
        """Let the change of a pull request start from a base with this perfgate.toml."""
        project = self.project
        base = project.commit(project.base, perfgate__toml=settings)
        head = project.git("commit-tree", f"{project.head}^{{tree}}", "-p", base, "-m", "head")
        self.environ["GITHUB_SHA"] = head
        self.event({"number": 7, "pull_request": {"number": 7, "head": {"sha": head, "repo": None}}})
        self.fake.changes[0] = replace(self.fake.changes[0], base_sha=base, head_sha=head, merge_sha=None)
        self.project = project._replace(base=base, head=head, merge=head)

    @property
    def ci(self) -> CiContext:
        """What the measuring job of this event says of itself."""
        return CiContext(
            forge=self.host, repository="team/model", run_id="50", run_attempt=1, head_sha=self.project.head
        )

    def measure(
        self,
        *,
        ops: int = 40,
        ci: Any = "own",
        commit: str | None = None,
        base: str | None = None,
        tolerances: Mapping[str, float] = {},
        slowdown: float = 1.0,
        testbed: str = "",
        session: str = "",
    ) -> None:
        """Write what `perfgate check` writes: a head that dispatches ``ops`` operators, and a base with 40.

        A call of the head takes ``slowdown`` times as long. The check of a ``testbed`` is a session of its own.
        """
        written = _check_folder(
            ops,
            base or self.project.base,
            commit or self.project.merge,
            self.ci if ci == "own" else ci,
            slowdown=slowdown,
            session=session or f"s-{testbed or 1}",
            tolerances=tuple(tolerances.items()),
        )
        for name, data in written.items():
            path = self.artifact / testbed / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def change(self, side: str, *, testbed: str = "", **fields: Any) -> None:
        """Replace fields of a document in the artifact, as far as its schema lets them be."""
        path = self.artifact / testbed / side / "run.json"
        document = json.loads(path.read_bytes())
        for name, value in fields.items():
            group = group_of(RunDocument, name)
            (document if group is None else document[group])[name] = value
        path.write_text(json.dumps(document))

    def zipped(self, prefix: str = "", *, testbed: str = "") -> bytes:
        """Return the artifact as its upload makes it."""
        data, artifact = io.BytesIO(), self.artifact / testbed
        with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(artifact.rglob("*")):
                if file.is_file():
                    archive.write(file, prefix + str(file.relative_to(artifact)))
        return data.getvalue()

    def publish(
        self, *, token: str | None = BOT_TOKEN, environment: type[dict[str, str]] = dict, **request: Any
    ) -> Done:
        """Publish in this process: real HTTP, real git, and time that passes only when somebody sleeps."""
        time, said = _Time(), list[str]()
        environ = environment({**self.environ, **({"PERFGATE_TOKEN": token} if token else {})})
        doors = Doors(environ=environ, say=said.append, sleep=time.sleep, clock=time.clock)
        root, artifact = request.pop("root", self.root), request.pop("artifact", self.artifact)
        try:
            event = request.pop("event", None) or detect(environ)
            posts = artifact is None or not request.get("dry_run", False)
            trusted = read_trusted_inputs(root, event, doors, posts=posts)
            code, error = publish(artifact, trusted, PublishRequest(**request), doors), ""
        except PerfgateError as refused:
            code, error = refused.exit_code, str(refused)
        return Done(code, "\n".join(said), error, time.slept)

    def download(self, **request: Any) -> Done:
        """Publish what the run has uploaded."""
        return self.publish(artifact=None, **request)

    def command(self, *options: str, token: str | None = BOT_TOKEN, **environ: str) -> subprocess.CompletedProcess[str]:
        """Publish with the real command, in a process of its own."""
        environment = self._environment(token, environ)
        return run_perfgate("publish", *(options or (str(self.artifact),)), cwd=self.root, environment=environment)

    def _environment(self, token: str | None, environ: dict[str, str]) -> dict[str, str]:
        plain = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        return {**plain, **self.environ, **({"PERFGATE_TOKEN": token} if token else {}), **environ}

    def comments(self, number: int = 7) -> list[str]:
        return [comment.body for comment in self.fake.comments.get(number, []) if comment.author == BOT]

    def comment(self) -> str:
        """The one comment there is."""
        (body,) = self.comments()
        return body

    def statuses(self) -> list[tuple[str, str]]:
        return [(status.sha, status.state) for status in self.fake.statuses]

    def marked(self, state: str) -> list[tuple[str, str]]:
        """Return which statuses there are of a verdict: of GitLab's own pipeline none, which is the check itself."""
        return [] if self.host == "gitlab" else [(self.project.head, state)]

    def paths(self, method: str) -> list[str]:
        return [call.path for call in self.fake.calls if call.method == method]


class _Time:
    def __init__(self) -> None:
        self.now, self.slept = START, list[float]()

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def clock(self) -> float:
        return self.now


@cache
def _check_folder(
    ops: int,
    base: str,
    commit: str,
    ci: CiContext | None,
    *,
    slowdown: float,
    session: str,
    tolerances: tuple[tuple[str, float], ...],
) -> dict[str, bytes]:
    """The documents of a check by their names: most tests begin with the same few, and to judge one takes a while."""
    runs = {
        "base": make_side("base", 40, base, ci, session=session),
        "head": make_side("head", ops, commit, ci, slowdown=slowdown, session=session),
    }
    decision = decide(runs["base"], runs["head"], policy=Policy(tolerances=dict(tolerances)), history=History())
    documents = {"base/run.json": runs["base"], "head/run.json": runs["head"], "decision.json": decision}
    return {name: canonical_bytes(document, name=name) for name, document in documents.items()}


def make_side(
    side: Any, ops: int, commit: str, ci: CiContext | None, *, slowdown: float = 1.0, session: str = "s-1"
) -> RunDocument:
    """Return the run document of one side, with one exact counter, 16 pairs of equal speed and stretches."""
    counted = OpCount(op="aten::linear", count=ops, line="model.py:8")
    counters = CounterSet(workload="encoder", shape="short", repeats=3, values={"counters.syncs": ops}, ops=[counted])
    times = {"started_at": "2026-11-20T10:00:00Z", "finished_at": "2026-11-20T10:05:00Z"}
    workload = WorkloadRecord(
        name="encoder", reference="perf/workload.py:encoder", sha256="0" * 64, batch=4, shapes=["short"]
    )
    comparable = {"device.name": "test"}
    firsts, seconds = pairs_of([slowdown + 0.0005 * (-1) ** pair for pair in range(16)], shape="short")
    of_base, of_head = stretches_of(call=0.01, ratio=slowdown, calls=4, shape="short")
    seal = Seal(entries=40_000, before="5e" * 32, after="5e" * 32)
    return RunDocument(
        perfgate_version=__version__,
        side=side,
        project="model",
        session=Session(id=session, **times, seed=1, command="perfgate check", ci=ci),
        source=Source(commit=commit, branch="feature", subject="a change", seal=seal),
        testbed=_Testbed(fingerprint=fingerprint(comparable), device_kind="cpu", comparable=comparable),
        workloads=[workload],
        checklist=Checklist(
            correctness=[CorrectnessResult(workload="encoder", shape="short", status="passed", signature="float32[4]")],
            counters=[counters],
        ),
        pairs=MeasuredPairs(replicates=[*firsts, *of_base] if side == "base" else [*seconds, *of_head]),
    )


def open_job(host: str, folder: Path, project: Project) -> Iterator[Job]:
    """Yield a job whose forge has change request 7, and hold every call against the API description at the end."""
    with FakeForge(HOSTS[host]()) as fake:
        fake.repository = project.root
        fake.changes.append(
            StoredChange(7, "mallory", "feature", project.head, project.merge, base_sha=project.base, target="main")
        )
        yield Job(fake, folder, project)
        assert fake.violations == []


@pytest.fixture(params=["github", "gitlab"])
def job(request: pytest.FixtureRequest, tmp_path: Path, project: Project) -> Iterator[Job]:
    yield from open_job(request.param, tmp_path, project)


@pytest.fixture
def github(tmp_path: Path, project: Project) -> Iterator[Job]:
    yield from open_job("github", tmp_path, project)


@pytest.fixture
def gitlab(tmp_path: Path, project: Project) -> Iterator[Job]:
    yield from open_job("gitlab", tmp_path, project)


@pytest.fixture
def enterprise(tmp_path: Path, project: Project) -> Iterator[Job]:
    yield from open_job("enterprise", tmp_path, project)


__all__ = ["Job", "Project", "enterprise", "github", "gitlab", "job", "project"]
