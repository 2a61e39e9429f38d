"""``python -m perfgate.measuring.request_client FILE:NAME ADDRESS``: a project's own
function that sends requests.

It listens on the Unix socket ADDRESS. Every line that comes is a request, as
``conductor/sides/server/programs.py`` writes it, and is answered by a line once the
function has returned. Only the standard library is imported: the project's environment
may lack everything else.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from inspect import iscoroutinefunction
from pathlib import Path
from types import SimpleNamespace
from typing import Any


def main(reference: str, address: str) -> None:
    """Serve the connections that come, one after the other, until the process is ended."""
    function = _load(reference)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        # A client may connect as soon as the file is visible.
        listener.bind(f"{address}.new")
        listener.listen()
        os.rename(f"{address}.new", address)  # noqa: PTH104 - a socket, and not a file
        while True:
            connection, _ = listener.accept()
            # Call the function for each request in a new thread: an open loop sends
            # while others are under way.
            writing = threading.Lock()
            with connection, connection.makefile("rb") as lines:
                for line in lines:
                    threading.Thread(
                        target=_answer,
                        args=(function, json.loads(line), connection, writing),
                        daemon=True,
                    ).start()


def _load(reference: str) -> Callable[[str, Any], Any]:
    """The function FILE:NAME. Exits with the correct form if there is none."""
    file, _, name = reference.rpartition(":")
    if not Path(file).is_file():
        sys.exit(
            f'{file or reference} does not exist; write client = "FILE:NAME", from the folder of perfgate.toml'
        )
    sys.path.insert(0, str(Path(file).resolve().parent))
    spec = importlib.util.spec_from_file_location("perfgate_client", file)
    if spec is None or spec.loader is None:
        sys.exit(f"{file} is no Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        sys.exit(f"{file} has no function {name!r}; define {name}(url, request)")
    return function  # type: ignore[no-any-return]


def _answer(
    function: Callable[[str, Any], Any],
    request: dict[str, Any],
    connection: socket.socket,
    writing: threading.Lock,
) -> None:
    answer = {"id": request["id"], "text": "", "error": ""}
    try:
        value = function(request.pop("url"), SimpleNamespace(**request))
        if iscoroutinefunction(function):
            value = asyncio.run(value)
        answer["text"] = "" if value is None else str(value)
    except Exception as error:  # noqa: BLE001 - the function is the user's, and one failure must not end the others
        answer["error"] = f"{type(error).__name__}: {error}"
    with writing:
        try:
            connection.sendall(json.dumps(answer).encode() + b"\n")
        except OSError:
            return  # the turn is over, and the answer is not needed


if __name__ == "__main__":
    main(*sys.argv[1:])
