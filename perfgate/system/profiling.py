"""What the conductor and the processes of a job agree on about profiling; it imports nothing that a program may lack."""

from __future__ import annotations

import signal

# The folder of a side. A process that catches the signal samples its stacks while the file SWITCH is there, and then writes
# them.
PROFILE_VARIABLE = "PERFGATE_PROFILE"
SWITCH = "on"
STARTED, STACKS = ".started", ".stacks"
# Real-time, so that user code has no handler for it; the workers of a check use the next one.
PROFILE_SIGNAL = signal.SIGRTMAX - 4
