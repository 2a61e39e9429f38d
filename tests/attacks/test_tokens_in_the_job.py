"""The measuring job and tokens: refused, removed, and out of reach of a worker that looks for them in /proc."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfgate.conductor.workers.environment import (
    drop_secrets,
    find_secrets,
    fresh_caches,
    refuse_persisted_token,
    reused_caches,
    token_notes,
    worker_environment,
)
from perfgate.errors import UsageError
from perfgate.judging.report.text.messages import word
from tests.attacks.measuring import project_for_all, run_job
from tests.each import each
from tests.fakes.wording import worded

VALUE = "ghs_" + "aB3" * 12
CI = {"CI": "true"}

# A workload that looks for a token wherever a process of its user can look, and prints what it finds into its log.
THIEF = """
import os, re
from pathlib import Path
import torch
from perfgate import Workload

def look():
    print("LOOKED", os.getuid(), flush=True)
    for name, value in os.environ.items():
        if "TOKEN" in name or "ghs_" in value:
            print("STOLEN own", name, flush=True)
    pid = os.getpid()
    while pid > 1:
        stat = Path(f"/proc/{pid}/stat").read_text()
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\\0", b" ").decode()
        for file in ("environ", "mem", "fd/1"):
            try:
                with open(f"/proc/{pid}/{file}", "rb" if file == "environ" else "r+b", buffering=0) as found:
                    text = found.read(1_000_000) if file == "environ" else b""
                    if file == "environ":
                        kind = "STOLEN" if b"ghs_" in text else "CLEAN"
                        print(kind, "environ of", command, flush=True)
                    elif pid != os.getpid():
                        print("OPENED", file, "of", command, flush=True)
            except OSError as error:
                print("REFUSED", file, "of", command, error.strerror, flush=True)
        pid = int(stat.rpartition(")")[2].split()[1])

def build(device):
    look()
    return torch.nn.Linear(4, 4)

thief = Workload(build=build, inputs=lambda batch, seed: torch.ones(batch, 4), batch=1)
"""


@each(
    "name, value",
    [
        ("GITHUB_TOKEN", "x"),
        ("GH_TOKEN", "x"),
        ("GH_ENTERPRISE_TOKEN", "x"),
        ("ACTIONS_RUNTIME_TOKEN", "x"),
        ("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "x"),
        ("ACTIONS_ID_TOKEN_REQUEST_URL", "https://example.invalid"),
        ("PERFGATE_TOKEN", "x"),
        ("GITLAB_TOKEN", "x"),
        ("PRIVATE-TOKEN", "x"),
        ("gitlab_private_token", "x"),
        ("GITEE_TOKEN", "x"),
        ("MY_PAT", "x"),
        ("INNOCENT", VALUE),
        ("ORIGIN", "https://oauth2:glpat-abcdefghij0123456789@gitlab.example/a/b"),
        ("ANOTHER", "github_pat_" + "A1b2" * 10),
        ("SERVICE", "perfgate_" + "A1b2-_x" * 6 + "z"),
    ],
)
def test_find_secrets__write_token__a_token_by_name_or_by_value(name: str, value: str) -> None:
    found = find_secrets({"PATH": "/bin", name: value})
    assert (found.tokens, found.forge_tokens) == ((name,), ())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GITHUB_TOKEN", ""),  # a step that sets it to nothing has none
        ("HF_TOKEN", "hf_abcdefghijklmnopqrstuvwxyz"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("LD_LIBRARY_PATH", "/opt/highs_and_lows/ghs_lib"),
        ("PATTERN", "glpat"),
        ("XPAT_HOME", "/opt"),
    ],
)
def test_find_secrets__no_write_token__nothing(name: str, value: str) -> None:
    assert find_secrets({name: value}).names == ()


@pytest.mark.parametrize(
    ("location", "is_secret"),
    [
        ("postgresql://perfgate:hunter2@db/perf", True),
        ("postgresql://perfgate:hun/ter@2@db/perf", True),
        ("postgresql://db/perf?user=perfgate&password=hunter2", True),
        ("postgresql://perfgate@db:5432/perf", False),
        ("branch://perfgate-data", False),
        ("/data/store.db", False),
    ],
)
def test_find_secrets__password_of_the_store__a_token_in_ci(location: str, is_secret: bool) -> None:
    """Outside CI the store would be another one without it, and the shell above has it anyway."""
    for name in ("PERFGATE_STORE", "PERFGATE_ARTIFACTS"):
        assert find_secrets({name: location, "CI": "true"}).tokens == (name,) * is_secret
        assert find_secrets({name: location}).tokens == ()


def test_find_secrets__what_gitlab_gives_every_job__told_apart() -> None:
    found = find_secrets(
        {"CI_JOB_TOKEN": "glcbt-64_aaaaaaaaaaaaaaaaaaaa", "CI_REGISTRY_PASSWORD": "x", "GITLAB_TOKEN": "x"}
    )
    assert (found.forge_tokens, found.tokens) == (("CI_JOB_TOKEN", "CI_REGISTRY_PASSWORD"), ("GITLAB_TOKEN",))


def test_drop_secrets__in_ci__names_and_no_values() -> None:
    environ = {**CI, "GITHUB_TOKEN": VALUE, "CI_JOB_TOKEN": "x", "PATH": "/bin"}
    kept = drop_secrets(environ, find_secrets(environ))
    assert kept == {**CI, "PATH": "/bin", "PERFGATE_SCRUBBED": "GITHUB_TOKEN,CI_JOB_TOKEN"}
    assert list(map(word, token_notes(kept))) == [
        "measured with a token in the job's environment (GITHUB_TOKEN), as --allow-token-in-env permits"
    ]
    assert token_notes({"PERFGATE_SCRUBBED": "CI_JOB_TOKEN"}) == []


def test_worker_environment__a_change_asks_for_the_token_in_its_own_perfgate_toml__not_passed() -> None:
    environ = {
        "GITHUB_TOKEN": VALUE,
        "CI_JOB_TOKEN": "x",
        "HF_TOKEN": "hf",
        "ASCEND_X": VALUE,
        "PIP_INDEX_URL": "https://x",
    }
    passed = worker_environment(
        environ, device="cpu", scratch=Path("/s"), threads=1, hash_seed=0, pass_env=[*environ, "GITHUB_TOKEN"]
    )
    assert {name for name in environ if name in passed} == {"HF_TOKEN", "PIP_INDEX_URL"}


CACHES = {
    "ASCEND_CACHE_PATH": "/shared/kernels",
    "TORCHAIR_CACHE_HOME": "/shared/air",
    "TRITON_CACHE_DIR": "/shared/triton",
}


@pytest.mark.parametrize(
    ("environ", "reuse", "pass_env", "passed"),
    [
        (CI, False, [], set()),
        (CI, True, [], {"ASCEND_CACHE_PATH", "TORCHAIR_CACHE_HOME"}),
        (CI, False, ["TRITON_CACHE_DIR"], {"TRITON_CACHE_DIR"}),
        ({}, False, [], {"ASCEND_CACHE_PATH", "TORCHAIR_CACHE_HOME"}),
    ],
)
def test_worker_environment__kernel_caches__fresh_in_ci_unless_asked_for_and_those_that_are_reused_are_known(
    environ: dict[str, str], reuse: bool, pass_env: list[str], passed: set[str]
) -> None:
    around = {**CACHES, **environ}
    made = worker_environment(
        around,
        device="npu",
        scratch=Path("/s"),
        threads=1,
        hash_seed=0,
        pass_env=pass_env,
        reuse_caches=reuse,
    )
    assert set(reused_caches(made)) == passed
    assert bool(fresh_caches(around, reuse=reuse, pass_env=pass_env)) == (bool(environ) and not reuse)


@pytest.fixture
def project() -> Iterator[Path]:
    with project_for_all("thief", THIEF) as folder:
        yield folder


def test_run__token_in_ci__refused_before_anything_runs_by_name_and_not_by_value(project: Path) -> None:
    done = run_job(project, CI="true", SOMETHING=VALUE, GITHUB_TOKEN=VALUE)
    assert done.returncode == 2
    assert "has a token in its environment: GITHUB_TOKEN, SOMETHING." in done.stderr
    assert "--allow-token-in-env measures all the same" in done.stderr
    assert VALUE not in done.stdout + done.stderr
    assert not (project / "out").exists()


def _looked(project: Path) -> list[str]:
    lines = [line for log in (project / "out" / "logs").glob("*.log") for line in log.read_text().splitlines()]
    assert any(line.startswith("LOOKED") for line in lines)
    return lines


def _of_perfgate(lines: list[str], what: str) -> list[str]:
    return [line for line in lines if line.startswith(what) and "perfgate" in line]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_run__token_allowed__worker_of_an_ordinary_user_reads_none_of_it_nor_any_of_our_processes(
    project: Path,
) -> None:
    done = run_job(project, "--allow-token-in-env", user=12345, CI="true", GITHUB_TOKEN=VALUE)
    assert done.returncode == 0, done.stderr
    lines = _looked(project)
    assert "LOOKED 12345" in lines
    assert _of_perfgate(lines, "STOLEN") == []
    # Neither the environment nor the memory nor the standard output of the conductor and the fork server.
    ours = [line for line in _of_perfgate(lines, "REFUSED") if "Permission denied" in line]
    for file in ("environ", "mem", "fd/1"):
        assert sum(line.startswith(f"REFUSED {file} of") and "cli.main" in line for line in ours) >= 1, lines
        assert sum(line.startswith(f"REFUSED {file} of") and "measuring.worker" in line for line in ours) >= 1, lines
    document = json.loads((project / "out" / "run.json").read_text())
    assert "measured with a token in the job's environment (GITHUB_TOKEN), as --allow-token-in-env permits" in map(
        worded, document["warnings"]
    )
    assert "removed from the environment before anything is measured: GITHUB_TOKEN" in done.stderr
    assert VALUE not in done.stdout + done.stderr + (project / "out" / "run.json").read_text()


@pytest.mark.skipif(os.getuid() != 0, reason="what even root's workers must not find")
def test_run__job_token_of_gitlab__not_refused_and_not_in_our_processes_even_for_root(project: Path) -> None:
    # Its value is shaped so that the thief knows it again.
    done = run_job(project, CI="true", CI_JOB_TOKEN=VALUE)
    assert done.returncode == 0, done.stderr
    assert _of_perfgate(_looked(project), "STOLEN") == []
    assert done.stderr.count("CI_JOB_TOKEN") == 1
    assert list(map(worded, json.loads((project / "out" / "run.json").read_text())["warnings"])) == [
        "thief: its output is not checked; give the workload a `check`, so that a wrong model cannot pass"
    ]


@pytest.mark.slow
def test_run__token_of_a_developer_outside_ci__removed_without_a_word(project: Path) -> None:
    done = run_job(project, GH_TOKEN=VALUE)
    assert done.returncode == 0, done.stderr
    assert "TOKEN" not in done.stderr
    assert _of_perfgate(_looked(project), "STOLEN") == []


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    return tmp_path


def _configure(clone: Path, *arguments: str) -> None:
    subprocess.run(["git", "config", *arguments], cwd=clone, check=True)


HEADER = "http.https://github.example/.extraheader"


@pytest.mark.parametrize("where", ["config", "included file"])
def test_refuse_persisted_token__token_in_the_clones_configuration__named_and_not_shown(
    clone: Path, where: str
) -> None:
    if where == "config":  # actions/checkout before 6
        _configure(clone, HEADER, f"AUTHORIZATION: basic {VALUE}")
    else:  # and since
        _configure(clone, "--file", str(clone / "credentials.config"), HEADER, f"AUTHORIZATION: basic {VALUE}")
        _configure(clone, f"includeIf.gitdir:{clone}/.git.path", str(clone / "credentials.config"))
    with pytest.raises(UsageError, match=r"persist-credentials: false") as refusal:
        refuse_persisted_token(clone)
    assert f"the clone keeps a token in its configuration: {HEADER}." in str(refusal.value)
    assert VALUE not in str(refusal.value)


@pytest.mark.parametrize(
    ("address", "refused"),
    [
        ("https://x-access-token:ghp_0123456789abcdef0123@github.example/team/model.git", True),
        ("https://oauth2:glpat-0123456789abcdef0123@gitlab.example/team/model.git", True),
        ("https://gitlab-ci-token:glcbt-64_0123456789abcdef0123@gitlab.example/team/model.git", False),
        ("https://github.example/team/model.git", False),
    ],
)
def test_refuse_persisted_token__token_in_the_address_of_a_remote__named_and_not_shown(
    clone: Path, address: str, refused: bool
) -> None:
    _configure(clone, "remote.origin.url", address)
    if not refused:
        refuse_persisted_token(clone)
        return
    with pytest.raises(UsageError, match=r"remote\.origin\.url") as error:
        refuse_persisted_token(clone)
    assert "0123456789" not in str(error.value)


def test_refuse_persisted_token__other_header_or_no_clone__nothing_said(clone: Path) -> None:
    _configure(clone, "http.extraheader", "X-Proxy: yes")
    refuse_persisted_token(clone)
    refuse_persisted_token(Path("/"))


def test_run__persisted_credentials__refused_in_ci_before_anything_runs(project: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    _configure(project, HEADER, f"AUTHORIZATION: basic {VALUE}")
    done = run_job(project, CI="true")
    assert done.returncode == 2
    assert "the clone keeps a token" in done.stderr
    assert not (project / "out").exists()
