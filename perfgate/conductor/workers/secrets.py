"""Which variables of a measuring job's environment hold a token, and what becomes of each.

Scrubbing the workers' environment is not enough: a worker reads its ancestors' in /proc. A token that can write to a forge
must not be in the job at all, so a job in CI refuses to start with one; what a forge gives to every job is removed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from perfgate.errors import RepositoryError, UsageError
from perfgate.git.commands import run_git

# Where somebody else's runner starts us: GitHub, GitLab, whoever sets CI, and a job that names its forge to perfgate.
CI_VARIABLES = ("GITHUB_ACTIONS", "GITLAB_CI", "PERFGATE_FORGE")

# GitLab gives these to every job, and CI_JOB_TOKEN is in each (doc/ci/jobs/ci_job_token.md, doc/ci/variables/
# predefined_variables.md). It reads; it cannot write notes, statuses or issues.
GIVEN_TO_EVERY_JOB = frozenset({
    "CI_JOB_TOKEN", "CI_BUILD_TOKEN", "CI_REGISTRY_PASSWORD", "CI_DEPENDENCY_PROXY_PASSWORD", "CI_REPOSITORY_URL",
    "CI_JOB_JWT", "CI_JOB_JWT_V1", "CI_JOB_JWT_V2",
})  # fmt: skip
# Tokens of services that hold models and no code: a workload may need one ([measure] pass_env), and none writes to a forge.
HARMLESS = frozenset({
    "HF_TOKEN", "HUGGINGFACE_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACEHUB_API_TOKEN", "MODELSCOPE_API_TOKEN",
    "MODELSCOPE_SDK_TOKEN", "OPENMIND_HUB_TOKEN",
})  # fmt: skip
# A name whose last word says it. Of the others only these: the address at which an identity token can be had.
_NAME = re.compile(r"(?:.*[_-])?(?:TOKEN|PAT)|ACTIONS_ID_TOKEN_REQUEST_URL")
# What GitHub and GitLab put in front of their tokens (docs.github.com, "About authentication to GitHub", token formats;
# docs.gitlab.com, "Token overview", token prefixes), under any name, also inside a URL.
_VALUE = re.compile(
    r"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9_]{16,}|github_pat_[A-Za-z0-9_]{16,}"
    r"|gl(?:pat|ptt|dt|cbt|soat|rt|imt|ft|agent|oas|wt|ffct)-[A-Za-z0-9_.-]{16,})"
)
# The names of what was taken away before perfgate started itself again. A note, and nothing to rely on.
SCRUBBED_VARIABLE = "PERFGATE_SCRUBBED"


@dataclass(frozen=True)
class Secrets:
    """Names of variables: ``tokens`` may write to a forge, ``given`` is what the forge gives to every job."""

    tokens: tuple[str, ...] = ()
    given: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Return all of them."""
        return (*self.tokens, *self.given)


def in_ci(environ: Mapping[str, str]) -> bool:
    """Tell whether a CI system runs us."""
    return environ.get("CI", "").lower() in ("true", "1") or any(environ.get(name) for name in CI_VARIABLES)


def find_secrets(environ: Mapping[str, str]) -> Secrets:
    """Return which variables hold a token; an empty one holds none."""
    given = tuple(sorted(name for name, value in environ.items() if value and name in GIVEN_TO_EVERY_JOB))
    tokens = (name for name, value in environ.items() if value and name not in given and _is_token(name, value))
    return Secrets(tuple(sorted(tokens)), given)


def refuse_tokens(found: Secrets) -> None:
    """Raise UsageError that names the variables, never their values, and what to do."""
    if not found.tokens:
        return
    names = ", ".join(name if name.isprintable() else repr(name) for name in found.tokens)
    raise UsageError(
        f"this job measures other people's code and has a token in its environment: {names}. That code could take it, so "
        "nothing was run. Give tokens to the publishing job only: remove `env:` entries and `id-token: write` from this "
        "one (in GitHub Actions; for a single step, set the variable to an empty text), or in GitLab limit the variable "
        "to the publishing job's environment. --allow-token-in-env measures all the same, if all who can change the code "
        "may have the token"
    )


def refuse_persisted(clone: Path) -> None:
    """Raise UsageError where a clone's configuration holds a token: actions/checkout leaves the job's there by default.

    So does who clones from an address with a token in it; GitLab's own clone may have CI_JOB_TOKEN there. Worktrees share
    that file with the clone, and user code runs in them. Outside a clone there is none.
    """
    try:
        found = run_git(clone, ["config", "--get-regexp", r"^(http\..*extraheader|remote\..*url)$"], {})
    except RepositoryError:  # no git, no clone
        return
    names = sorted({line.partition(" ")[0] for line in found.output.splitlines() if _has_token(line)})
    if names:
        raise UsageError(
            f"this job measures other people's code and the clone keeps a token in its configuration: {', '.join(names)}. "
            "Nothing was run. Give actions/checkout `persist-credentials: false`, and clone from an address without a token; "
            "--allow-token-in-env measures all the same"
        )


def scrubbed(environ: Mapping[str, str], found: Secrets) -> dict[str, str]:
    """Return an environment without the secrets; in CI it names them in SCRUBBED_VARIABLE, elsewhere nobody asked."""
    kept = {name: value for name, value in environ.items() if name not in found.names}
    return {**kept, SCRUBBED_VARIABLE: ",".join(found.names)} if in_ci(environ) else kept


def scrubbed_notes(environ: Mapping[str, str]) -> list[str]:
    """Return what a run document says of a job that was told to measure with a token around."""
    names = [name for name in environ.get(SCRUBBED_VARIABLE, "").split(",") if name]
    tokens = [name for name in names if name not in GIVEN_TO_EVERY_JOB]
    if not tokens:
        return []
    return [f"measured with a token in the job's environment ({', '.join(tokens)}), by --allow-token-in-env"]


def _has_token(line: str) -> bool:
    """Return whether a setting of a clone, its name and what it says, holds a token other than the job's on GitLab."""
    tokens = _VALUE.findall(line.partition(" ")[2])
    return "authorization:" in line.lower() or any(not token.startswith("glcbt-") for token in tokens)


def _is_token(name: str, value: str) -> bool:
    if name in HARMLESS:
        return False
    return _NAME.fullmatch(name.upper()) is not None or _VALUE.search(value) is not None
