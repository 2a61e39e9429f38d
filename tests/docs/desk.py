"""Where the shell blocks of the pages run: a developer's desk, with a clone, its origin and perfgate's repository."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

from perfgate.judging.store.runs import record_runs
from tests.docs.blocks import ROOT
from tests.end_to_end.conftest import SMALL_GATE, WORKLOADS
from tests.fakes.forge import BOT_TOKEN, FakeForge, StoredChange
from tests.fakes.forge_dialects import GitHubDialect
from tests.fakes.package_index import offline
from tests.forking import exit_code, forked
from tests.installed import from_git, write_installation
from tests.unit.cli.test_trace_ranks import job

SECONDS = 300
MODEL = "https://github.com/team/model"
# Where the pages say that perfgate lies: OWNER is whoever publishes it.
PERFGATE = "https://github.com/OWNER/perfgate"


class Desk:
    """A clone of team/model on main, its one commit pushed. Both addresses lead to repositories in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clone = folder / "model"
        self.environment = self._environment()
        for address in (MODEL, PERFGATE):
            self._git(folder, "init", "-q", "--bare", "-b", "main", str(self._place(address)))
        self._git(folder, "clone", "-q", PERFGATE, "release")
        shutil.copy(ROOT / ".pre-commit-hooks.yaml", folder / "release")
        self._commit(folder / "release", "perfgate")
        self._git(folder / "release", "push", "-q", "origin", "HEAD")
        self.commit = self._git(folder / "release", "rev-parse", "HEAD").strip()
        installed = write_installation(folder / "installed", from_git(PERFGATE, self.commit))
        # pip has nothing to do for a perfgate that is there already.
        self.environment.update(PYTHONPATH=str(installed), PERFGATE="perfgate")
        self._git(folder, "clone", "-q", MODEL, "model")
        (self.clone / "README.md").write_text("a model\n")
        self._commit(self.clone, "a model")
        self._git(self.clone, "push", "-q", "origin", "HEAD")

    def run(self, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the lines of a block in the clone, as somebody would who stops at the first that fails.

        What a block exports of perfgate's variables is there for the next one, as a job's variables are.
        """
        exported = self.folder / "exported"
        process = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f"{script}\nenv -0 > {shlex.quote(str(exported))}"],
            cwd=self.clone,
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        if process.returncode == 0:
            words = (entry.partition("=") for entry in exported.read_text().split("\0"))
            new = {name: value for name, _, value in words if name.startswith("PERFGATE_") and name not in environment}
            self.environment.update(new)
        return process

    def close(self) -> None:
        """End what the desk has started."""

    def _environment(self) -> dict[str, str]:
        author = {f"GIT_{role}_{field}": "someone" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")}
        settings = [(f"url.{self._place(address)}.insteadOf", address) for address in (MODEL, PERFGATE)]
        settings += [("protocol.file.allow", "always"), ("init.defaultBranch", "main")]
        settings += [("user.name", "someone"), ("user.email", "someone")]
        git = {"GIT_CONFIG_COUNT": str(len(settings))}
        for number, (name, value) in enumerate(settings):
            git.update({f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value})
        return {
            **{name: os.environ[name] for name in ("LANG", "LD_LIBRARY_PATH") if name in os.environ},
            **author,
            **git,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "HOME": str(self.folder),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PERFGATE_LOCK": str(self.folder / "lock"),
            "PRE_COMMIT_HOME": str(self.folder / "pre-commit"),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            **offline(),
        }

    def _place(self, address: str) -> Path:
        return self.folder / "server" / address.rpartition("github.com/")[2]

    def _commit(self, clone: Path, message: str) -> None:
        self._git(clone, "add", "--all")
        self._git(clone, "commit", "--quiet", "--allow-empty", "--message", message)

    def _git(self, folder: Path, *arguments: str) -> str:
        command = ["git", *arguments]
        return subprocess.run(
            command, cwd=folder, env=self.environment, check=True, capture_output=True, text=True
        ).stdout


class Project(Desk):
    """A desk whose clone holds a small model that perfgate gates, quickly, already on the main branch."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (self.clone / "perf").mkdir()
        shutil.copy(WORKLOADS / "small_model.py", self.clone / "model.py")
        shutil.copy(WORKLOADS / "small_workload.py", self.clone / "perf" / "workload.py")
        settings = f'workload = "perf/workload.py:small"\n[store]\npath = "branch://perfgate-data"\n{SMALL_GATE}'
        (self.clone / "perfgate.toml").write_text(settings)
        (self.clone / ".pre-commit-config.yaml").write_text(PRE_COMMIT.replace("COMMIT", self.commit))
        self._commit(self.clone, "gate performance")
        self._git(self.clone, "push", "-q", "origin", "HEAD")


# As docs/hook.md writes it.
PRE_COMMIT = f"""repos:
  - repo: {PERFGATE}
    rev: COMMIT
    hooks:
      - id: perfgate-local
"""


class Watched(Project):
    """A project with thirty runs of main in its data branch, of which the later half is slower."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        assert exit_code(forked(self._record)) == 0

    def _record(self) -> None:
        """In a process of its own, which takes the desk's folder and environment."""
        from perfgate.config import load_config
        from perfgate.flows.shared.store import open_project_store
        from tests.fakes.history import main_runs, stepped

        os.environ.clear()
        os.environ.update(self.environment)
        os.chdir(self.clone)
        runs = [msgspec.structs.replace(run, project="model") for run in main_runs(30, time=stepped(15, 1.1))]
        record_runs(open_project_store(load_config(Path()), os.environ), runs, allow_dirty=False, now=None)


class Jenkins(Project):
    """Two jobs of Jenkins for pull request 7 of a GitHub server of one's own; ``publisher`` is the one with the token."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._git(self.clone, "switch", "-q", "-c", "feature")
        self._commit(self.clone, "a change")
        self.forge = FakeForge(GitHubDialect()).__enter__()
        self.forge.repository = self.clone
        head = self._git(self.clone, "rev-parse", "HEAD").strip()
        self.forge.changes.append(StoredChange(7, "team", "feature", head))
        self.environment.update(
            CHANGE_ID="7", BUILD_NUMBER="12", BUILD_URL=f"{self.forge.url}/job/12/", PERFGATE_API_URL=self.forge.api_url
        )

    def publisher(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run the lines of the publishing job, which ends with a comment on the pull request."""
        process = self.run(script, PERFGATE_TOKEN=BOT_TOKEN)
        assert len(self.forge.comments[7]) == 1, process.stdout
        return process

    def close(self) -> None:
        """End the forge; it has seen nothing that its API does not know."""
        self.forge.__exit__()
        assert self.forge.violations == []


class Checked(Watched):
    """A fresh clone of a branch that the gate fails by an operator more, with what `perfgate check` has written there.

    Its project has stored runs of main and a rule that judges a run alone; beside it lie recordings of a job of several ranks.
    """

    def __init__(self, folder: Path, *, measured: bool = True) -> None:
        super().__init__(folder)
        with (self.clone / "perfgate.toml").open("a") as settings:
            settings.write('[limits]\n"ops.kernel_time.warning" = { value = 1000, gating = true }\n')
        self._commit(self.clone, "a rule")
        self._git(self.clone, "push", "-q", "origin", "HEAD")
        base = self._git(self.clone, "rev-parse", "HEAD").strip()
        self._git(self.clone, "switch", "-q", "-c", "feature")
        model = self.clone / "model.py"
        model.write_text(model.read_text().replace("return torch.relu(y)", "return torch.relu(y + 0)"))
        self._commit(self.clone, "an operator more")
        head = self._git(self.clone, "rev-parse", "HEAD").strip()
        self.origin = self._git(self.clone, "remote", "get-url", "origin").strip()
        self._git(self.clone, "push", "-q", "origin", "feature")
        self._git(folder, "clone", "-q", "--branch", "feature", "--no-local", self.origin, "branch")
        self.clone = folder / "branch"
        (folder / "empty").mkdir()
        self._git(folder / "empty", "init", "-q")
        self._git(folder / "empty", "remote", "add", "origin", MODEL)
        recordings = folder / "recordings"
        job(recordings / "job")
        shutil.copy(ROOT / "tests" / "data" / "trace" / "device.json", recordings / "trace.json")
        self.known = self.words(recordings, base, head, folder / "empty")
        if measured:
            done = self.run("perfgate check --steps 4 || test $? -eq 1")
            assert done.returncode == 0, done.stdout

    @staticmethod
    def words(recordings: Path, base: str, head: str, empty: Path) -> dict[str, str]:
        """What the capital words of printed commands stand for here."""
        file, run = "perfgate-out/base/run.json", "perfgate-out/head/run.json"
        job_folder = str(recordings / "job")
        known = {"BASE": base, "COMMIT": head, "DIR": job_folder, "EMPTY": str(empty), "FILE": file, "RUN": run}
        known |= {
            "METRIC": "latency.low",
            "N": "5",
            "NAME": "latency.p50",
            "PATH": sys.executable,
            "WORD": "batch.knee",
        }
        known |= {"MAIN": "main"}
        return {**known, "REC": str(recordings / "trace.json"), "NEW": sys.prefix, "TEXT": "meant"}
