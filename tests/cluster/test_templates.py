"""templates/slurm and templates/kubernetes: valid for their own programs, and run to a comment with the testbed's column."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.clusters import RunningCluster, running_slurm
from tests.command import run_perfgate
from tests.end_to_end.conftest import Clone, make_clone

TEMPLATES = Path(__file__).parents[2] / "templates"
SLOWER = ("y = self.layer(x)\n", "y = self.layer(x)\n        y = y + 0\n        y = y + 0\n")
CHECK = "check --base main --steps 4"
BIN = Path(sys.executable).parent


@pytest.fixture
def changed(tmp_path: Path) -> Clone:
    """A change that runs two operators more, and a base with a testbed."""
    clone = make_clone(tmp_path / "clone")
    clone.git("checkout", "-q", "main")
    config = clone.root / "perfgate.toml"
    config.write_text(config.read_text() + '[testbeds]\nnode = "cpu"\n')
    (clone.root / ".gitignore").write_text("perfgate-*\n*.sbatch\n__pycache__/\n")
    clone.commit("the testbed")
    clone.git("checkout", "-q", "-B", "feature", "main")
    clone.commit("slower", model=SLOWER)
    return clone


def published(clone: Clone) -> str:
    """Return the comment on what lies in perfgate-out, as a job in a checkout of the main branch makes it."""
    clone.git("checkout", "-q", "--detach", "main")
    done = run_perfgate("publish", "perfgate-out", "--dry-run", cwd=clone.root)
    assert done.returncode == 1, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_slurm(tmp_path_factory.mktemp("slurm"), os.environ) as running:
        yield running


def test_sbatch__of_a_change__measured_on_the_node_and_joined_to_the_comment(
    slurm: RunningCluster, changed: Clone
) -> None:
    script = changed.root / "testbed.sbatch"
    text = (TEMPLATES / "slurm" / "testbed.sbatch").read_text()
    assert "# source .venv/bin/activate\n" in text
    script.write_text(text.replace("# source .venv/bin/activate\n", f"export PATH={BIN}:$PATH\n"))
    environment = {**os.environ, **slurm.environment, "PERFGATE_TOKEN": "of-the-job"}

    def sbatch(*options: str) -> subprocess.CompletedProcess[str]:
        command = ["sbatch", *options, script.name, "node", *CHECK.split()]
        return subprocess.run(
            command, cwd=changed.root, env=environment, capture_output=True, text=True, timeout=300, check=False
        )

    tested = sbatch("--test-only")
    assert tested.returncode == 0, tested.stderr
    done = sbatch("--wait")
    (log,) = changed.root.glob("perfgate-*.log")
    assert done.returncode == 1, done.stderr + log.read_text()
    assert "removed from the environment" not in log.read_text()
    assert "perfgate: FAIL – on all 1 testbeds\n" in published(changed)


def job(**placeholders: str) -> dict[str, Any]:
    text = (TEMPLATES / "kubernetes" / "testbed.yml").read_text()
    for name, value in placeholders.items():
        text = text.replace(f"${{{name}}}", value)
    return dict(yaml.safe_load(text))


def test_manifest__validator_of_kubernetes__finds_nothing() -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="make test-cluster installs it")
    document = job(
        TESTBED="node", IMAGE="registry.example/perfgate", REPOSITORY="https://x", COMMIT="0" * 40, COMMAND=CHECK
    )
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def test_manifest__containers_run_one_after_another__the_log_of_the_last_is_the_artifact(
    tmp_path: Path, changed: Clone
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    head = changed.git("rev-parse", "HEAD")
    pod = job(
        TESTBED="node",
        IMAGE="i",
        REPOSITORY=str(changed.root),
        COMMIT=head,
        COMMAND=CHECK.replace("main", "origin/main"),
    )["spec"]["template"]["spec"]
    for container in (*pod["initContainers"], *pod["containers"]):
        given = {one["name"]: one["value"] for one in container.get("env", []) if "value" in one}
        environment = {**os.environ, **given, "PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(work)}
        script = container["args"][0].replace("/work", str(work))
        done = subprocess.run(
            [*container["command"], script], cwd=work, env=environment, capture_output=True, timeout=300, check=False
        )
        assert (container["name"], done.returncode) in {("clone", 0), ("measure", 0), ("artifact", 1)}, done.stderr
    out = changed.root / "perfgate-out"
    out.mkdir()
    (out / "node.zip").write_bytes(base64.b64decode(done.stdout))
    assert "perfgate: FAIL – on all 1 testbeds\n" in published(changed)
