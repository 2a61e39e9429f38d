"""Readings of a process beside this one, asked for while it writes."""

from __future__ import annotations

import subprocess
import sys
import tempfile

from perfgate.document.message import Message
from perfgate.sampling import Sampler

WRITER = """
import sys
for number in range(3000):
    sys.stdout.write('{"failure": {"code": "%d"}}\\n' % number)
    sys.stdout.flush()
sys.stdin.read()
"""


def test_sampler__asked_all_the_time_while_lines_come__every_line_whole_and_in_order() -> None:
    with tempfile.TemporaryFile() as output:
        with subprocess.Popen([sys.executable, "-c", WRITER], stdin=subprocess.PIPE, stdout=output) as process:
            sampler = Sampler(process, output)
            while len(sampler._lines()) < 3000:
                pass
            sampler.end()
        assert [line.failure for line in sampler._lines()] == [Message(str(number)) for number in range(3000)]
