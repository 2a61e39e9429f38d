"""Run by tests/command.py: import what the command line needs, then fork a process for each order from a socket."""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import random
import socket
import sys
import tempfile
import threading
import time
import traceback
from typing import Any

import perfgate.flows
from perfgate.cli import commands, main
from perfgate.judging.report.text.templates import environment

# An order is one packet; the command's environment is most of it.
MOST_BYTES = 1 << 20
# Where the exit code goes, and the command's stdin, stdout and stderr.
DESCRIPTORS = 4
TEMPLATES = {"markdown": ("comment/", "shared/"), "plain": ("shared/",), "html": ("page/", "shared/")}


def prepare() -> None:
    """Import every command and its job, and compile the templates that most commands print."""
    for package in (commands, perfgate.flows):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    for medium, folders in TEMPLATES.items():
        jinja = environment(medium)
        for name in jinja.list_templates(["j2"]):
            if name.startswith(folders):
                jinja.get_template(name)


def await_order(orders: socket.socket) -> dict[str, Any]:
    """Return an order in the process that is to carry it out; this process ends with the tests."""
    while True:
        packet, descriptors, _, _ = socket.recv_fds(orders, MOST_BYTES, DESCRIPTORS)
        if not packet:
            os._exit(0)
        if not os.fork():
            orders.close()
            return _keep(json.loads(packet), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        _reap()


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _keep(order: dict[str, Any], reply: int, *streams: int) -> dict[str, Any]:
    """Fork the command, answer with its process and at its end with its exit code."""
    command = os.fork()
    if command:
        os.write(reply, f"{command}\n".encode())
        _, status = os.waitpid(command, 0)
        os.write(reply, f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os._exit(0)
    os.close(reply)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    return order


def become(order: dict[str, Any]) -> None:
    """Make this process what `python -m perfgate.cli.main` is after its start."""
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["environment"])
    time.tzset()
    tempfile.tempdir = None
    random.seed()
    sys.path[0] = order["cwd"]
    sys.argv = [str(main.__file__), *order["arguments"]]


def carry_out() -> None:
    """Run the command and end, with all that Python does at its end but the destruction of every module."""
    code: object = 1
    try:
        main.main()
    except SystemExit as ended:
        code = ended.code
    except BaseException:  # noqa: BLE001 - as the interpreter's own top level
        traceback.print_exc()
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    prepare()
    # A collection in a command would otherwise copy every page of what is imported here.
    gc.collect()
    gc.freeze()
    become(await_order(socket.socket(fileno=int(sys.argv[1]))))
    carry_out()
