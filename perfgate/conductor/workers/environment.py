"""The environment of workers: an allow-list, pinned malloc settings, thread counts, a
scratch home; and no token.

Removing tokens from the workers' environment is not enough: a worker reads its
ancestors' in /proc. A token that can write to a forge must not be in the job at all, so
a job in CI refuses to start with one; tokens that a forge gives to every job are
removed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from perfgate.config import device_kind
from perfgate.document.message import Message
from perfgate.errors import RepositoryError, UsageError
from perfgate.git.commands import run_git


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Names that may pass. No token can be among them: other names do not exist for the
# worker. All are the runner's own: a change cannot set them, and the library in
# LD_PRELOAD is already loaded into the conductor itself. Names that begin with NVIDIA_
# pass one by one: NVIDIA_API_KEY is among them.
ALLOWED = frozenset(
    _words("""
        PATH LANG LANGUAGE TZ LD_LIBRARY_PATH LD_PRELOAD PYTHONPATH VIRTUAL_ENV TOOLCHAIN_HOME RANK_TABLE_FILE
        NVIDIA_TF32_OVERRIDE NVIDIA_VISIBLE_DEVICES NVIDIA_DRIVER_CAPABILITIES
        PYTORCH_NPU_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF PYTORCH_NO_NPU_MEMORY_CACHING
        TASK_QUEUE_ENABLE CPU_AFFINITY_CONF MULTI_STREAM_MEMORY_REUSE COMBINED_ENABLE HOST_CACHE_CAPACITY
        STREAMS_PER_DEVICE PER_STREAM_QUEUE PROF_CONFIG_PATH KINETO_USE_DAEMON TORCHINDUCTOR_NPU_BACKEND
        HF_HOME HF_HUB_CACHE HF_HUB_OFFLINE TRANSFORMERS_OFFLINE TORCH_HOME MODELSCOPE_CACHE OPENMIND_HUB_CACHE
    """)
)
ALLOWED_PREFIXES = _words("""
    LC_ ASCEND_ HCCL_ ACL_ ACLNN_ NPU_ASD_ ATB_ INF_NAN_MODE_ TORCH_NPU_ TORCH_HCCL_ TORCHAIR_
    OMP_ MKL_ ONEDNN_ NCCL_ GLOO_ CUDA_ CUBLAS_ CUBLASLT_ CUDNN_
""")

# Caches of operator and graph compilers outside the home: ASCEND_CACHE_PATH, and before
# it ACL_OP_COMPILER_CACHE_DIR, before $HOME/atc_data (hiascend.com, CANN 9.0,
# "ASCEND_CACHE_PATH"); torchair; torch's inductor, triton and extensions; CUDA's.
# Kernels there may come from an earlier change.
KERNEL_CACHES = _words("""
    ACL_OP_COMPILER_CACHE_DIR ASCEND_CACHE_PATH CUDA_CACHE_PATH TORCHAIR_CACHE_HOME TORCHINDUCTOR_CACHE_DIR
    TORCH_EXTENSIONS_DIR TRITON_CACHE_DIR TUNE_BANK_PATH XDG_CACHE_HOME
""")

# glibc gives memory back to the kernel and takes it again, page fault by page fault, on
# every call of some models; the same process then has its own speed level, by luck.
# Keeping the memory removes that luck: no mmap of its own for any block (a threshold
# instead is cut at 32 MiB by glibc), never trim, grow in large pieces. Minor faults and
# milliseconds per call, one thread, torch 2.13, glibc 2.36:
#                                          conv stack 4x3x112x112     conv 4x3x224x224, output of 51 MB
#   no setting                                   8038, 25.3                    37635, 73.9
#   threshold 32 MiB, trim 4 GiB                    0, 13.2                    37635, 79.8
#   threshold 32 MiB, trim 4 GiB, pad 256 MiB       0, 13.0                     5959, 21.9
#   these 78, 12.9 (the heap still grew) 0, 20.4
MALLOC_SETTINGS = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(4 * 1024**3),
    "MALLOC_TOP_PAD_": str(256 * 1024**2),
}
# OpenMP threads that wait by spinning burn the time slice of the thread they wait for:
# on a machine with one of two CPUs shared, a call of 2 ms took 400 ms (median, 2
# threads, torch 2.13), with passive waiting 6 ms. It costs a small model on idle CPUs
# (2.0 against 2.6 ms), so a server with another policy sets it in its command, and it
# is recorded.
WAIT_POLICY = {"OMP_WAIT_POLICY": "PASSIVE"}
# torch since 2.5 imports an installed torch_npu by itself, and therefore fails to
# import without CANN even if no NPU is used ("Failed to load the backend extension:
# torch_npu", torch 2.13 with torch_npu 2.13.0).
AUTOLOADED_KIND = "npu"
NO_AUTOLOAD = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
# Signs of a CI runner: GitHub, GitLab, any that sets CI, and a job that names its forge
# to perfgate.
CI_VARIABLES = ("GITHUB_ACTIONS", "GITLAB_CI", "PERFGATE_FORGE")

# GitLab gives these to every job, and CI_JOB_TOKEN is in each
# (doc/ci/jobs/ci_job_token.md, doc/ci/variables/ predefined_variables.md). It reads; it
# cannot write notes, statuses or issues.
FORGE_TOKENS = frozenset(
    _words("""
        CI_JOB_TOKEN CI_BUILD_TOKEN CI_REGISTRY_PASSWORD CI_DEPENDENCY_PROXY_PASSWORD CI_REPOSITORY_URL
        CI_JOB_JWT CI_JOB_JWT_V1 CI_JOB_JWT_V2
    """)
)
# Tokens of services that hold models and no code: a workload may need one ([measure]
# pass_env), and none writes to a forge.
HARMLESS = frozenset(
    _words("""
        HF_TOKEN HUGGINGFACE_TOKEN HUGGING_FACE_HUB_TOKEN HUGGINGFACEHUB_API_TOKEN MODELSCOPE_API_TOKEN
        MODELSCOPE_SDK_TOKEN OPENMIND_HUB_TOKEN
    """)
)
# A name with a telling last word, and the address that issues identity tokens.
_TOKEN_NAME = re.compile(r"(?:.*[_-])?(?:TOKEN|PAT)|ACTIONS_ID_TOKEN_REQUEST_URL")
# Prefixes of GitHub's and GitLab's tokens (docs.github.com, "About authentication to
# GitHub", token formats; docs.gitlab.com, "Token overview", token prefixes), under any
# name, also inside a URL.
_TOKEN_VALUE = re.compile(
    r"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9_]{16,}|github_pat_[A-Za-z0-9_]{16,}"
    r"|gl(?:pat|ptt|dt|cbt|soat|rt|imt|ft|agent|oas|wt|ffct)-[A-Za-z0-9_.-]{16,}"
    # Of a service over the store (judging/store/ledger.py).
    r"|perfgate_[A-Za-z0-9_-]{43})"
)
# A store may have an address with a password, which writes to it.
_STORES = ("PERFGATE_STORE", "PERFGATE_ARTIFACTS")
_PASSWORD = re.compile(r"://[^/@]*:.*@|(?i:password=)")
# The names of variables removed before perfgate started itself again. Only for notes;
# it is no proof.
DROPPED_VARIABLE = "PERFGATE_SCRUBBED"


def worker_environment(
    environ: Mapping[str, str],
    *,
    device: str,
    scratch: Path,
    threads: int,
    hash_seed: int,
    pass_env: list[str],
    reuse_caches: bool = False,
) -> dict[str, str]:
    """The environment of the fork server and so of every worker.

    ``device`` is the configured one, such as ``npu:1``; ``pass_env`` are further names
    from perfgate.toml, never tokens.
    """
    withheld = {
        *find_secrets(environ).names,
        *fresh_caches(environ, reuse=reuse_caches, pass_env=pass_env),
    }
    environment = dict(WAIT_POLICY)
    for name, value in environ.items():
        is_allowed = (
            name in ALLOWED or name.startswith(ALLOWED_PREFIXES) or name in pass_env
        )
        if is_allowed and name not in withheld:
            environment[name] = value
    if device_kind(device) != AUTOLOADED_KIND:
        environment |= NO_AUTOLOAD
    return {
        **environment,
        **MALLOC_SETTINGS,
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "OMP_NUM_THREADS": str(threads),
        "PYTHONHASHSEED": str(hash_seed % 2**32),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
    }


def fresh_caches(
    environ: Mapping[str, str], *, reuse: bool, pass_env: list[str]
) -> list[str]:
    """The variables that workers do not get, so that every CI job begins with empty
    kernel caches, in its scratch home.

    On a developer's machine they are the developer's own; and a project may ask for
    them, all or by name.
    """
    if reuse or not in_ci(environ):
        return []
    return [
        name for name in KERNEL_CACHES if environ.get(name) and name not in pass_env
    ]


def reused_caches(environment: Mapping[str, str]) -> list[str]:
    """The variables by which workers reach kernels that an earlier job may have left."""
    return [name for name in KERNEL_CACHES if environment.get(name)]


# --- tokens


@dataclass(frozen=True)
class Secrets:
    """Names of variables: ``tokens`` may write to a forge, the forge gives
    ``forge_tokens`` to every job.
    """

    tokens: tuple[str, ...] = ()
    forge_tokens: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.tokens, *self.forge_tokens)


def in_ci(environ: Mapping[str, str]) -> bool:
    return environ.get("CI", "").lower() in ("true", "1") or any(
        environ.get(name) for name in CI_VARIABLES
    )


def find_secrets(environ: Mapping[str, str]) -> Secrets:
    """The variables that hold a token, or in CI the password of the store; an empty one
    holds none.
    """
    tokens = []
    forge_tokens = []
    for name, value in sorted(environ.items()):
        if not value or name in HARMLESS:
            continue
        is_token = _TOKEN_NAME.fullmatch(name.upper()) or _TOKEN_VALUE.search(value)
        is_store = name in _STORES and in_ci(environ)
        if name in FORGE_TOKENS:
            forge_tokens.append(name)
        elif is_token or (is_store and _PASSWORD.search(value)):
            tokens.append(name)
    return Secrets(tuple(tokens), tuple(forge_tokens))


def refuse_tokens(secrets: Secrets) -> None:
    """Raise UsageError that names the variables, never their values, and the remedy."""
    if not secrets.tokens:
        return
    names = ", ".join(
        name if name.isprintable() else repr(name) for name in secrets.tokens
    )
    raise UsageError(
        "this job measures other people's code and has a token in its environment: {names}. That code could take "
        "it, so nothing was run. Give tokens to the publishing job only: remove `env:` entries and `id-token: "
        "write` from this one (in GitHub Actions; for a single step, set the variable to an empty text), or in "
        "GitLab limit the variable to the publishing job's environment. --allow-token-in-env measures all the "
        "same, if all who can change the code may have the token",
        names=names,
    )


def refuse_persisted_token(clone: Path) -> None:
    """Raise UsageError if a clone's configuration holds a token: actions/checkout
    leaves the job's there by default.

    So does a clone from an address with a token in it; GitLab's own clone may have
    CI_JOB_TOKEN there. Worktrees share that file with the clone, and user code runs in
    them. Outside a clone there is none.
    """
    try:
        settings = run_git(
            clone,
            ["config", "--get-regexp", r"^(http\..*extraheader|remote\..*url)$"],
            {},
        )
    except RepositoryError:  # no git, no clone
        return
    names = set()
    for line in settings.output.splitlines():
        name, _, value = line.partition(" ")
        # A token of the job on GitLab reads, and cannot write.
        tokens = [
            token
            for token in _TOKEN_VALUE.findall(value)
            if not token.startswith("glcbt-")
        ]
        if tokens or "authorization:" in line.lower():
            names.add(name)
    if names:
        raise UsageError(
            "this job measures other people's code and the clone keeps a token in its configuration: {names}. "
            "Nothing was run. Give actions/checkout `persist-credentials: false`, and clone from an address without "
            "a token; --allow-token-in-env measures all the same",
            names=", ".join(sorted(names)),
        )


def drop_secrets(environ: Mapping[str, str], secrets: Secrets) -> dict[str, str]:
    """An environment without the secrets; in CI it names them in DROPPED_VARIABLE."""
    environment = {
        name: value for name, value in environ.items() if name not in secrets.names
    }
    if in_ci(environ):
        environment[DROPPED_VARIABLE] = ",".join(secrets.names)
    return environment


def token_notes(environ: Mapping[str, str]) -> list[Message]:
    """The notes for a run document measured, on request, with a token in the
    environment.
    """
    tokens = [
        name
        for name in environ.get(DROPPED_VARIABLE, "").split(",")
        if name and name not in FORGE_TOKENS
    ]
    if not tokens:
        return []
    return [Message("notes.token-allowed", {"names": tokens})]
