"""The release workflow run by act on a tag of this checkout, up to the upload, for which a stand-in says what it would take."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from perfgate.version import __version__
from tests.ci.act import ACTIONS, Run

pytestmark = [pytest.mark.skipif(shutil.which("act") is None, reason="act is not on the PATH")]
ROOT = Path(__file__).parents[2]
WORKFLOW = ".github/workflows/release.yml"
SECONDS = 1800


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What git tracks here, as it is now, committed in a repository of its own."""
    root = tmp_path / "checkout"
    for name in git(ROOT, "ls-files", "-z").split("\0"):
        if name and (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, root / name)
    git(root, "init", "--quiet", "--initial-branch", "main")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "the release")
    return root


def git(folder: Path, *arguments: str) -> str:
    author = [part for name in ("name", "email") for part in ("-c", f"user.{name}=someone")]
    command = ["git", *author, "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def release(checkout: Path, folder: Path, tag: str) -> Run:
    """Push a tag, as act sees it."""
    origin, artifacts, programs = folder / "origin.git", folder / "artifacts", folder / "programs"
    git(checkout, "tag", tag)
    git(folder, "clone", "--quiet", "--bare", str(checkout), str(origin))
    for path in (artifacts, programs):
        path.mkdir()
    # As actions/setup-python leaves it.
    (programs / "python").symlink_to(
        Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    )
    event = folder / "event.json"
    event.write_text(json.dumps({"ref": f"refs/tags/{tag}", "repository": {"full_name": "team/perfgate"}}))
    settings = folder / "gitconfig"
    settings.write_text(f'[url "{origin}"]\n  insteadOf = https://forge.example/team/perfgate\n')
    variables = {
        "GITHUB_REF": f"refs/tags/{tag}",
        "GITHUB_REF_NAME": tag,
        "GITHUB_RUN_ID": "7",
        "GITHUB_REPOSITORY": "team/perfgate",
        "GITHUB_SERVER_URL": "https://forge.example",
        "GITHUB_SHA": git(checkout, "rev-parse", "HEAD").strip(),
        "GIT_CONFIG_GLOBAL": str(settings),
    }
    command = ["act", "push", "-W", WORKFLOW, "-e", str(event), "-P", "ubuntu-latest=-self-hosted"]
    command += ["-P", "ubuntu-24.04-arm=-self-hosted"]
    command += ["--no-skip-checkout", "--no-cache-server", "--concurrent-jobs", "1"]
    command += [part for name, value in variables.items() for part in ("--env", f"{name}={value}")]
    for used in re.findall(r"uses: (\S+/\S+@\S+)", (checkout / WORKFLOW).read_text()):
        command += ["--local-repository", f"{used}={ACTIONS / used.partition('/')[2].partition('@')[0]}"]
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(folder),
        "PERFGATE_LOCK": str(folder / "lock"),
        "ACT_ORIGIN": str(origin),
        "ACT_ARTIFACTS": str(artifacts),
    }
    process = subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    return Run(process)


def test_release__tag_of_the_version__built_checked_and_ready_to_upload(checkout: Path, tmp_path: Path) -> None:
    run = release(checkout, tmp_path, f"v{__version__}")
    assert run.jobs == {"build": "succeeded", "aarch64": "succeeded", "publish": "succeeded", "site": "succeeded"}, (
        run.log[-4000:]
    )
    uploads = re.findall(r"would upload (\S+)", run.of("publish"))
    wheels = [f"perfgate-{__version__}-py3-none-{of}.whl" for of in ("any", f"manylinux_2_17_{platform.machine()}")]
    assert sorted(uploads) == [*wheels, f"perfgate-{__version__}.tar.gz"]
    assert "release: demo: mistake is FAIL" in run.of("build")
    assert "index.html" in git(tmp_path / "origin.git", "ls-tree", "--name-only", "gh-pages").splitlines()


def test_release__tag_of_another_version__nothing_is_published(checkout: Path, tmp_path: Path) -> None:
    run = release(checkout, tmp_path, "v9.9.9")
    assert run.jobs == {"build": "failed", "aarch64": "failed"}, run.log[-4000:]
    assert f"the tag must be v{__version__}" in run.of("build")
