"""What a worker's own stack says of it."""

from __future__ import annotations

from perfgate.conductor.workers.worker import innermost_last

# As CPython 3.11 writes it (docs.python.org, faulthandler, "Example").
STACK = """Fatal Python error: Segmentation fault

Thread 0x00007fb0a1 (most recent call first):
  File "threading.py", line 331 in wait
  File "threading.py", line 973 in _bootstrap

Current thread 0x00007fb899 (most recent call first):
  File "model.py", line 3 in deep
  File "model.py", line 7 in build
  File "worker.py", line 40 in _work

Thread 0x00007fb0a2 (most recent call first):
  <no Python frame>
"""


def test_innermost_last__threads__in_the_order_of_a_traceback_the_current_one_at_the_end() -> None:
    assert innermost_last(STACK) == (
        "Fatal Python error: Segmentation fault\n\n"
        "Thread 0x00007fb0a1 (most recent call last):\n"
        '  File "threading.py", line 973 in _bootstrap\n'
        '  File "threading.py", line 331 in wait\n\n'
        "Thread 0x00007fb0a2 (most recent call last):\n"
        "  <no Python frame>\n\n"
        "Current thread 0x00007fb899 (most recent call last):\n"
        '  File "worker.py", line 40 in _work\n'
        '  File "model.py", line 7 in build\n'
        '  File "model.py", line 3 in deep'
    )


def test_innermost_last__nothing_written__nothing() -> None:
    assert innermost_last("") == ""
