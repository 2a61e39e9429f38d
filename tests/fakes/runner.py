"""Commands run in this process."""

from __future__ import annotations

from click.testing import CliRunner


def separating_runner() -> CliRunner:
    """Return a runner that keeps standard output and standard error apart, as all do from click 8.2 on."""
    try:
        return CliRunner(mix_stderr=False)
    except TypeError:
        return CliRunner()
