"""A publishing job on a CI without variables of its own, to which perfgate's variables describe its event."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perfgate.document.decision import Policy
from perfgate.document.files import write_document
from perfgate.document.history import History
from perfgate.document.run import CiContext
from perfgate.judging.gate.decide import decide
from tests.command import COMMAND, run_perfgate
from tests.end_to_end.publishing import Project, make_side
from tests.fakes.forge import BOT, BOT_TOKEN, FakeForge, StoredChange


class Given:
    """A job somewhere: the check folder it has, and the event that its variables describe."""

    def __init__(self, fake: FakeForge, folder: Path, project: Project) -> None:
        self.fake, self.folder, self.project = fake, folder, project
        self.host = fake.dialect.name  # type: ignore[attr-defined]

    def measure(self, run: int, *, ops: int = 40) -> Path:
        """Write what `perfgate check` writes in a job that was told of run ``run``."""
        own = CiContext(
            forge=self.host, repository="team/model", run_id=str(run), run_attempt=1, head_sha=self.project.head
        )
        base = make_side("base", 40, self.project.base, own)
        head = make_side("head", ops, self.project.head, own)
        out = self.folder / f"run-{run}"
        for side, document in (("base", base), ("head", head)):
            (out / side).mkdir(parents=True)
            write_document(out / side / "run.json", document)
        write_document(out / "decision.json", decide(base, head, policy=Policy(), history=History()))
        return out

    def start(self, folder: Path, run: int, *options: str) -> subprocess.Popen[str]:
        """Start a publisher."""
        return subprocess.Popen(
            [*COMMAND, "publish", str(folder), *options],
            env=self._environment(run),
            cwd=self.project.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def publish(self, folder: Path, run: int, *options: str) -> subprocess.CompletedProcess[str]:
        environment = self._environment(run)
        return run_perfgate("publish", str(folder), *options, cwd=self.project.root, environment=environment)

    def _environment(self, run: int) -> dict[str, str]:
        plain = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        return {
            **plain,
            "PERFGATE_TOKEN": BOT_TOKEN,
            "PERFGATE_STORE": str(self.folder / "store.db"),
            "PERFGATE_FORGE": self.host,
            "PERFGATE_REPOSITORY": "team/model",
            "PERFGATE_CHANGE_REQUEST": "7",
            "PERFGATE_HEAD_SHA": self.project.head,
            "PERFGATE_RUN_ID": str(run),
            "PERFGATE_API_URL": self.fake.api_url,
        }

    def comments(self) -> list[str]:
        return [comment.body for comment in self.fake.comments.get(7, []) if comment.author == BOT]


@contextmanager
def given_job(dialect: Any, folder: Path, project: Project) -> Iterator[Given]:
    """A job for change request 7 on a fake forge of a dialect."""
    with FakeForge(dialect) as fake:
        fake.repository = project.root
        fake.changes.append(StoredChange(7, "team", "feature", project.head, base_sha=project.base))
        yield Given(fake, folder, project)
        assert fake.violations == []
