"""The collector is off and the heap frozen while measuring, and both are as before afterwards.

Each test has a process: the one of the tests keeps its heap frozen (conftest.py), and thawing it takes seconds.
"""

from __future__ import annotations

import subprocess
import sys

PRELUDE = "import gc\nfrom perfgate.system.garbage import collector_off, quiet\n"


def check(code: str) -> None:
    """Run assertions in a fresh process."""
    done = subprocess.run([sys.executable, "-c", PRELUDE + code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_quiet__inside__collector_off_and_heap_frozen() -> None:
    check("""
with quiet():
    assert not gc.isenabled()
    assert gc.get_freeze_count() > 0
assert gc.isenabled()
assert gc.get_freeze_count() == 0
""")


def test_quiet__exception__restored() -> None:
    check("""
try:
    with quiet():
        raise ValueError("user code")
except ValueError:
    pass
assert gc.isenabled()
assert gc.get_freeze_count() == 0
""")


def test_quiet__nested__the_outer_one_stays_quiet() -> None:
    check("""
with quiet():
    with quiet():
        pass
    assert not gc.isenabled()
    assert gc.get_freeze_count() > 0
""")


def test_quiet__collector_was_off__stays_off() -> None:
    check("""
gc.disable()
with quiet():
    pass
assert not gc.isenabled()
""")


def test_collector_off__cycle_made_inside__collected_at_the_end() -> None:
    check("""
with quiet():
    with collector_off():
        cycle = []
        cycle.append(cycle)
        del cycle
    assert gc.collect() == 0
""")
