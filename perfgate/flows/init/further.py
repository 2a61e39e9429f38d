"""What fits a new project besides the files written: inputs of the CI files that save a device, and templates for clusters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from perfgate.flows.init.inputs import Forge

Further = Literal["plan", "record", "testbeds", "slurm", "kubernetes"]
# Forges with a reusable workflow or template of ours.
_WITH_INPUTS = ("github", "gitlab")


def fitting(forge: Forge | None, device: str, is_installed: Callable[[str], bool]) -> tuple[Further, ...]:
    """What fits a project that measures on ``device``; ``is_installed`` tells whether this machine has a program."""
    takes_device = forge in _WITH_INPUTS and device != "cpu"
    fits: dict[Further, bool] = {
        "plan": takes_device,
        # On GitHub trusted.yml always does it.
        "record": forge == "gitlab",
        "testbeds": takes_device,
        "slurm": is_installed("sbatch"),
        "kubernetes": is_installed("kubectl"),
    }
    return tuple(name for name, does in fits.items() if does)
