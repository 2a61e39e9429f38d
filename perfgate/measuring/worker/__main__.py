"""``python -m perfgate.measuring.worker FD MODULE…``: start the fork server on an inherited socket."""

import socket
import sys

from perfgate.measuring.worker.server import serve

serve(socket.socket(fileno=int(sys.argv[1])), preload=sys.argv[2:])
