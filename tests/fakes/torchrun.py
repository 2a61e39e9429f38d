"""A stand-in for ``torch.distributed.run`` that starts in no time: one process a rank.

What it does with ranks that end is modelled on torchrun of torch 2.13: each has a session of its own; when one fails, the
others are ended and the exit code is 1.
"""

from __future__ import annotations

from pathlib import Path

_RUN = """
import os, subprocess, sys, time
ranks, port = int(sys.argv[2]), sys.argv[6]
settings = {"WORLD_SIZE": str(ranks), "MASTER_PORT": port}
started = [
    subprocess.Popen([sys.executable, *sys.argv[7:]], env={**os.environ, **settings, "RANK": str(rank)}, start_new_session=True)
    for rank in range(ranks)
]
while any(process.poll() is None for process in started):
    time.sleep(0.1)
    if any(process.poll() for process in started):
        for process in started:
            process.kill()
        sys.exit(1)
"""


def install(folder: Path) -> Path:
    """Write it below ``folder``, and return what belongs on Python's path."""
    package = folder / "fake-torch" / "torch" / "distributed"
    package.mkdir(parents=True)
    for parent in (package, package.parent):
        (parent / "__init__.py").touch()
    (package / "run.py").write_text(_RUN)
    return package.parent.parent
