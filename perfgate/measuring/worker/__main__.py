"""``python -m perfgate.measuring.worker FD MODULE…``: start the fork server on an inherited socket."""

import socket
import sys

from perfgate.measuring.worker.server import serve

# `-m` puts the current folder first; it is a scratch folder of ours and no part of the user's project.
del sys.path[0]
serve(socket.socket(fileno=int(sys.argv[1])), preload=sys.argv[2:])
