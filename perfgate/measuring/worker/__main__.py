"""``perfgate.measuring.worker FD MODULE… [-- MODULE…]``: start the fork server on an
inherited socket.
"""

import gc
import socket
import sys

# Imports make objects and hardly any garbage: looking for it takes a sixth of the time.
# The server turns it on again.
gc.disable()

from perfgate.system.loads import report_loads  # noqa: E402 - not before

report_loads()

from perfgate.measuring.worker.server import serve  # noqa: E402 - its imports are reported

modules = sys.argv[2:]
end = modules.index("--") if "--" in modules else len(modules)
serve(
    socket.socket(fileno=int(sys.argv[1])),
    preload=modules[:end],
    parts=modules[end + 1 :],
)
