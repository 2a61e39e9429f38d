"""What ``perfgate.turn()`` and the conductor agree on; it imports nothing that the environment of a script may lack."""

from __future__ import annotations

# The Unix socket on which the conductor grants turns.
TURN_VARIABLE = "PERFGATE_TURN"
# The longest line that either end reads, in bytes. A step takes about 60 of a report.
MAX_LINE = 1 << 20
