from __future__ import annotations

from pathlib import Path

from perfgate.conductor.environment import worker_environment


def _environment(environ: dict[str, str], pass_env: tuple[str, ...] = ()) -> dict[str, str]:
    return worker_environment(environ, scratch=Path("/scratch"), threads=3, hash_seed=5, pass_env=list(pass_env))


def test_worker_environment__nothing_around__what_is_pinned() -> None:
    assert _environment({}) == {
        "HOME": "/scratch",
        "TMPDIR": "/scratch",
        "OMP_NUM_THREADS": "3",
        "OMP_WAIT_POLICY": "PASSIVE",
        "PYTHONHASHSEED": "5",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": "4294967296",
        "MALLOC_TOP_PAD_": "268435456",
    }


def test_worker_environment__secrets_and_paths__only_what_is_listed_or_asked_for() -> None:
    around = {
        "PATH": "/bin",
        "LC_ALL": "C",
        "ASCEND_RT_VISIBLE_DEVICES": "0",
        "HOME": "/home/me",
        "OMP_NUM_THREADS": "64",
        "GITHUB_TOKEN": "secret",
        "CI_JOB_TOKEN": "secret",
        "LD_PRELOAD": "/evil.so",
        "PYTHONSTARTUP": "/evil.py",
        "MODEL_CACHE": "/models",
    }
    found = _environment(around, pass_env=("MODEL_CACHE",))
    kept = {name: found[name] for name in around if name in found}
    assert kept == {
        "PATH": "/bin",
        "LC_ALL": "C",
        "ASCEND_RT_VISIBLE_DEVICES": "0",
        "HOME": "/scratch",
        "OMP_NUM_THREADS": "3",
        "MODEL_CACHE": "/models",
    }


def test_worker_environment__wait_policy_of_the_user__kept() -> None:
    assert _environment({"OMP_WAIT_POLICY": "ACTIVE"})["OMP_WAIT_POLICY"] == "ACTIVE"
