"""The inputs of a publication, which a change cannot edit.

They are its options, perfgate.toml of this checkout, the event of this job, and its
forge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from perfgate.config import CONFIG_NAME, Config, load_config
from perfgate.errors import ConfigError
from perfgate.flows.shared.ci_artifact import DEFAULT_KEY
from perfgate.flows.shared.doors import Doors
from perfgate.flows.shared.store import git_access
from perfgate.judging.forge.forge import ChangeRequest, CiEvent, Forge
from perfgate.judging.store.store import GitAccess
from perfgate.locale import Language

FailOn = Literal["undecided", "regression", "never"]


@dataclass(frozen=True)
class PublishRequest:
    """Which check is published, and in which form.

    ``key`` distinguishes several gates of one repository. ``workload`` is the only
    workload measured, if one was ordered alone; its comment and status must not replace
    the whole check's. ``testbeds`` are expected besides those in perfgate.toml.
    ``status`` sets or omits the commit status; None decides by the kind of pipeline.
    ``fail_on`` selects the verdicts that make the status red. ``out`` is the folder for
    decision, comment and report as judged here; with ``outputs`` the verdict becomes an
    output of the CI step. ``record`` keeps the verdict in the store of main's runs.
    """

    key: str = DEFAULT_KEY
    dry_run: bool = False
    language: Language = "en"
    workload: str | None = None
    testbeds: tuple[str, ...] = ()
    status: bool | None = None
    fail_on: FailOn = "undecided"
    out: Path | None = None
    outputs: bool = False
    record: bool = False

    @property
    def name(self) -> str:
        if self.workload:
            return f"{self.key}/{self.workload}"
        return self.key

    @property
    def only(self) -> tuple[str, ...]:
        """The ordered workloads, if not all were."""
        if self.workload:
            return (self.workload,)
        return ()


@dataclass(frozen=True)
class TargetForge:
    """The forge to post on, and the access to its git server, both with the job's
    token.
    """

    forge: Forge
    event: CiEvent
    access: GitAccess


@dataclass(frozen=True)
class TrustedInputs:
    """The inputs of a judgement besides the artifacts.

    ``root`` is the project's folder in a checkout of the base or of the default branch,
    and ``config`` its perfgate.toml: None if it has none, or if ``config_error`` is the
    reason why it cannot be read. ``event`` is None outside a CI job, and ``target``
    without a token. ``change`` is the change request, if it still has the event's head.
    """

    root: Path
    environ: Mapping[str, str]
    event: CiEvent | None = None
    config: Config | None = None
    config_error: ConfigError | None = None
    target: TargetForge | None = None
    change: ChangeRequest | None = None

    def checked_config(self) -> Config | None:
        """The configuration. Raises ConfigError if it cannot be read."""
        if self.config_error is not None:
            raise self.config_error
        return self.config

    @property
    def proposed(self) -> ChangeRequest | None:
        """The change request, or the change that a merge queue builds."""
        event = self.event
        if self.change is not None or event is None or event.base_sha is None:
            return self.change
        return ChangeRequest(number=0, head_sha=event.head_sha, base_sha=event.base_sha)

    def with_change(self, measured: int | None) -> TrustedInputs:
        """The same with the change request of the event's head.

        If several have this exact head, the number that the artifact names chooses
        among them, but never another one.
        """
        if self.target is None:
            return self
        change = self.target.forge.find_change_request(prefer=measured)
        if change is None or change.head_sha != self.target.event.head_sha:
            return self
        return replace(self, change=change)


def read_trusted_inputs(
    root: Path, event: CiEvent | None, doors: Doors, *, posts: bool
) -> TrustedInputs:
    """Read perfgate.toml once, and connect to the forge if the job has a token and
    something is to be posted or fetched.

    ``root`` is the folder with perfgate.toml in a checkout of the base or of the
    default branch, never of the change. Raises ForgeError if the forge refuses.
    """
    trusted = TrustedInputs(root, doors.environ, event)
    if (root / CONFIG_NAME).exists():
        try:
            trusted = replace(trusted, config=load_config(root, environ=doors.environ))
        except ConfigError as error:  # judging raises and posts it
            trusted = replace(trusted, config_error=error)
    forge = None
    if event is not None and posts:
        forge = doors.connect(event)
    if event is None or forge is None:
        return trusted
    target = TargetForge(forge, event, git_access(event, doors.environ))
    return replace(trusted, target=target)
