"""Documents read in several threads at once, as the service of a store does when runners upload in the same moment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

READ = """
import sys, threading
from perfgate.document.files import canonical_bytes
from tests.unit.document.minimal import minimal_run
sys.setswitchinterval(1e-6)
barrier, texts = threading.Barrier(16), []
def read():
    barrier.wait()
    texts.append(canonical_bytes(minimal_run(), name="the run"))
threads = [threading.Thread(target=read) for _ in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(texts) == 16 and len(set(texts)) == 1
"""


def test_canonical_bytes__first_use_in_sixteen_threads__no_crash() -> None:
    """Without a lock msgspec 0.22 ends five of six such processes with a segmentation fault."""
    done = subprocess.run(
        [sys.executable, "-c", READ], cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
