"""What judges a change and cannot be edited by it: perfgate.toml of this checkout, the event of this job, and its forge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from perfgate.config import CONFIG_NAME, Config, load_config
from perfgate.errors import ConfigError
from perfgate.flows.shared.doors import Doors
from perfgate.flows.shared.store import git_access
from perfgate.judging.forge.forge import ChangeRequest, CiEvent, Forge
from perfgate.judging.store.store import GitAccess


@dataclass(frozen=True)
class CheckoutSettings:
    """perfgate.toml of the checkout, None if it has none; ``error`` is the reason why it cannot be read."""

    config: Config | None = None
    error: ConfigError | None = None

    def checked(self) -> Config | None:
        """The configuration. Raises ConfigError if it cannot be read."""
        if self.error is not None:
            raise self.error
        return self.config


@dataclass(frozen=True)
class TargetForge:
    """The forge to post on, and the access to its git server, both with the job's token."""

    forge: Forge
    event: CiEvent
    access: GitAccess


@dataclass(frozen=True)
class TrustedInputs:
    """The inputs of a judgement besides the artifacts.

    ``root`` is the project's folder in a checkout of the base or of the default branch. ``event`` is None outside a CI job, and
    ``target`` without a token. ``change`` is the change request, if it still has the event's head.
    """

    root: Path
    environ: Mapping[str, str]
    settings: CheckoutSettings
    event: CiEvent | None = None
    target: TargetForge | None = None
    change: ChangeRequest | None = None

    @property
    def proposed(self) -> ChangeRequest | None:
        """The change request, or the change that a merge queue builds."""
        event = self.event
        if self.change is not None or event is None or event.base_sha is None:
            return self.change
        return ChangeRequest(number=0, head_sha=event.head_sha, base_sha=event.base_sha)

    def with_change(self, measured: int | None) -> TrustedInputs:
        """The same with the change request of the event's head.

        If several have this exact head, the number that the artifact names chooses among them, but never another one.
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
    """Read perfgate.toml once, and connect to the forge if the job has a token and something is to be posted or fetched.

    ``root`` is the folder with perfgate.toml in a checkout of the base or of the default branch, never of the change.
    Raises ForgeError if the forge refuses.
    """
    settings = CheckoutSettings()
    if (root / CONFIG_NAME).exists():
        try:
            settings = CheckoutSettings(load_config(root, environ=doors.environ))
        except ConfigError as error:  # judging raises and posts it
            settings = CheckoutSettings(error=error)
    trusted = TrustedInputs(root, doors.environ, settings, event)
    if event is None or not posts:
        return trusted
    forge = doors.connect(event)
    if forge is None:
        return trusted
    return replace(
        trusted, target=TargetForge(forge, event, git_access(event, doors.environ))
    )
