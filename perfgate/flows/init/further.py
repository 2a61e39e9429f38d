"""What fits a new project besides the files written: inputs of the CI files that save a device, and templates for clusters."""

from __future__ import annotations

from typing import Literal

from perfgate.flows.init.inputs import Forge

Further = Literal["plan", "record", "testbeds", "slurm", "kubernetes"]
# Forges with a reusable workflow or template of ours.
_WITH_INPUTS = ("github", "gitlab")


def fitting(forge: Forge | None, device: str, *, slurm: bool, kubernetes: bool) -> tuple[Further, ...]:
    """What fits a project that measures on ``device``: ``slurm`` on this machine, ``kubernetes`` in its files."""
    takes_device = forge in _WITH_INPUTS and device != "cpu"
    fits: dict[Further, bool] = {
        "plan": takes_device,
        # On GitHub trusted.yml always does it.
        "record": forge == "gitlab",
        "testbeds": takes_device,
        "slurm": slurm,
        "kubernetes": kubernetes,
    }
    return tuple(name for name, does in fits.items() if does)
