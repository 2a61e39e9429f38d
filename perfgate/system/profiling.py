"""The profiling protocol between the conductor and the processes of a job; it imports
only signal, which no program lacks.
"""

from __future__ import annotations

import signal

# The folder of a side. A process that catches the signal samples its stacks while the
# file SWITCH is there, and then writes them; while OPERATORS_SWITCH is there its
# torch.profiler records operators. One that starts while FROM_START is there samples
# from its start to its end.
PROFILE_VARIABLE = "PERFGATE_PROFILE"
SWITCH, OPERATORS_SWITCH, FROM_START = "on", "operators", "from-start"
STARTED, STACKS = ".started", ".stacks"
# Written by every process that was asked; the trace only by one that uses torch.
RECORDING, OPERATORS = ".recording", ".operators.json.gz"
# Real-time, so that user code has no handler for it; the workers of a check use the
# next one.
PROFILE_SIGNAL = signal.SIGRTMAX - 4
