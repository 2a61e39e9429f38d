"""The protocol between ``perfgate.turn()`` and the conductor; it has no imports, which
a script's environment may lack.
"""

from __future__ import annotations

# The Unix socket on which the conductor grants turns.
TURN_VARIABLE = "PERFGATE_TURN"
# The longest line that either end reads, in bytes. A step takes about 60 of a report.
MAX_LINE = 1 << 20
