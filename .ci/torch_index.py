"""Print the index of torch's CPU builds where pip would take a build with gigabytes of CUDA; nothing elsewhere.

That is so on Linux on x86-64, where the default index has the CUDA build. Where pip is configured to take packages from another
place, that place decides.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from pathlib import Path

# `perfgate init` writes the same index into lock files.
LOCK = Path(__file__).parents[1] / "perfgate" / "flows" / "init" / "lock.py"
INDEX = re.compile(r'^_TORCH_INDEX = "(.+)"$', re.MULTILINE)
# As `pip config list` names the settings, whether from a file or from the environment.
CONFIGURED = re.compile(r"\.(?:index-url|extra-index-url|find-links|no-index)=")


def torch_index(system: str, machine: str, configured: str) -> str:
    """Return the index for a system with these lines of `pip config list`; empty for pip's own choice."""
    if (system, machine) != ("Linux", "x86_64") or CONFIGURED.search(configured):
        return ""
    found = INDEX.search(LOCK.read_text(encoding="utf-8"))
    if found is None:
        raise ValueError(f"{LOCK} has no line _TORCH_INDEX = …")
    return found[1].format(build="cpu")


if __name__ == "__main__":
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        capture_output=True,
        text=True,
        check=True,
    )
    sys.stdout.write(torch_index(platform.system(), platform.machine(), listed.stdout))
