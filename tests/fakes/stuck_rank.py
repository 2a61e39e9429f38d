"""A rank that waits in C with the interpreter's lock in its hands, as one does whose backend hangs: no thread of it can act."""

import ctypes
import sys
from pathlib import Path

from perfgate.measuring.checklist.collectives.ranks import end_with_job

end_with_job()
(Path(sys.argv[1]).parent / "stuck").touch()
while True:
    ctypes.PyDLL(None).sleep(600)
