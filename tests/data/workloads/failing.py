"""Workloads that do everything a workload must not do, and one that is well."""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time

import torch

from perfgate import Workload


class ReluctantError(Exception):
    def __str__(self):
        raise RuntimeError("no words for this")


def _model(device):
    return torch.nn.Linear(4, 4)


def _inputs(batch, seed):
    return torch.ones(batch, 4)


def _workload(**fields):
    return Workload(**{"build": _model, "inputs": _inputs, **fields})


def _raise(error):
    raise error


def _sleep():
    time.sleep(3600)


def _allocate():
    return torch.ones(4 << 30, dtype=torch.uint8)


def _allocate_python():
    return bytearray(4 << 30)


def _exhaust_stack():
    return _exhaust_stack()


def _segfault():
    ctypes.string_at(0)


def _kill_server():
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(10)


def _close_everything():
    os.closerange(0, 256)


def _our_socket():
    for number in range(3, 64):
        try:
            found = socket.socket(fileno=os.dup(number))
        except OSError:
            continue
        if found.family == socket.AF_UNIX:
            return found
        found.close()
    raise AssertionError("no socket found")


def _write(data):
    _our_socket().sendall(data)


def _print_much():
    forged = json.dumps({"type": "Loaded", "batch": 666, "shapes": ["forged"], "sla_p99": None, "seconds": 0})
    for stream in (sys.stdout, sys.stderr):
        print("::error::forged by the workload", file=stream)
        print(forged, file=stream)
    for _ in range(20):
        sys.stdout.write("x" * 1_000 + "\n")
    os.write(1, b"written past Python\n")


def _leave_process():
    subprocess.Popen(["sleep", "1234.5"])


def _leave_daemon():
    """A process in a session of its own, whose parent has ended, with an environment that says nothing."""
    command = "(env -i setsid sleep 1234.5 >/dev/null 2>&1 &) ; (env -i setsid sh -c 'sleep 1234.5 & sleep 1234.5' &)"
    subprocess.run(["sh", "-c", command], check=True)


def _leave_sibling(own_session):
    """A process that is a child of our parent from its beginning (clone(2), CLONE_PARENT), with an environment of nothing."""
    number = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
    clone_parent, sigchld = 0x8000, 17
    if ctypes.CDLL(None).syscall(number, clone_parent | sigchld, 0, 0, 0, 0) == 0:
        if own_session:
            os.setsid()
        os.execve("/bin/sleep", ["sleep", "1234.5"], {})  # sleep 1234.5


def _calling(function):
    """A workload whose every call calls ``function`` first."""

    def call(model, inputs):
        function()
        return model(inputs)

    return _workload(call=call)


well = _workload(check=lambda output, inputs: output.shape == (1, 4))

build_raises = _workload(build=lambda device: _raise(ValueError("no such checkpoint")))
build_none = _workload(build=lambda device: None)
build_exits = _workload(build=lambda device: sys.exit("I quit"))
build_aborts = _workload(build=lambda device: os.abort())
build_hangs = _workload(build=lambda device: _sleep())
inputs_none = _workload(inputs=lambda batch, seed: None)
inputs_raise = _workload(inputs=lambda batch, seed: _raise(KeyError("row 7")))
inputs_wrong = _workload(inputs=lambda batch, seed: "a string")
check_says_false = _workload(check=lambda output, inputs: False)
check_says_tensor_false = _workload(check=lambda output, inputs: (output == 12345.0).all())
check_raises = _workload(check=lambda output, inputs: _raise(AssertionError("off by 0.5")))
check_aborts = _workload(check=lambda output, inputs: os.abort())
check_hangs = _workload(check=lambda output, inputs: _sleep())

call_raises = _calling(lambda: _raise(RuntimeError("mat1 and mat2 shapes cannot be multiplied")))
call_raises_unprintable = _calling(lambda: _raise(ReluctantError()))
call_raises_surrogate = _calling(lambda: _raise(FileNotFoundError("caf\udce9.bin")))
call_exits = _calling(lambda: sys.exit(3))
call_exits_hard = _calling(lambda: os._exit(7))
call_aborts = _calling(os.abort)
call_segfaults = _calling(_segfault)
call_hangs = _calling(_sleep)
call_is_killed = _calling(lambda: os.kill(os.getpid(), signal.SIGKILL))
call_kills_server = _calling(_kill_server)
call_takes_memory = _calling(_allocate)
call_takes_python_memory = _calling(_allocate_python)
call_recurses = _calling(_exhaust_stack)
call_closes_everything = _calling(_close_everything)
call_writes_garbage = _calling(lambda: _write(b"GET / HTTP/1.1\r\n\r\n"))
call_writes_half_a_message = _calling(lambda: (_write(b"\x00\x10\x00\x00{"), _sleep()))
call_writes_json = _calling(lambda: _write(b"\x02\x00\x00\x00{}"))
call_answers_itself = _calling(lambda: _write(b'\x14\x00\x00\x00{"type":"BlockDone"}'))
prints_much = _calling(_print_much)
leaves_process = _calling(_leave_process)
leaves_daemon = _calling(_leave_daemon)
leaves_sibling = _calling(lambda: _leave_sibling(False))
leaves_sibling_apart = _calling(lambda: _leave_sibling(True))


class Uncopyable(torch.nn.Linear):
    """A model that works as long as nobody copies it, which only experiments do."""

    def __init__(self, ending):
        super().__init__(4, 4)
        self.ending = ending

    def __deepcopy__(self, memo):
        self.ending()


class FullOnly(torch.nn.Linear):
    """A model that works in full precision."""

    def forward(self, x):
        if torch.is_autocast_enabled("cpu"):
            _segfault()
        return super().forward(x)


def _uncopyable(ending):
    return _workload(build=lambda device: Uncopyable(ending).eval())


copy_raises = _uncopyable(lambda: _raise(ReluctantError()))
copy_exits = _uncopyable(lambda: sys.exit("not me"))
copy_exits_hard = _uncopyable(lambda: os._exit(7))
copy_segfaults = _uncopyable(_segfault)
copy_hangs = _uncopyable(_sleep)
copy_takes_memory = _uncopyable(_allocate)
autocast_segfaults = _workload(build=lambda device: FullOnly(4, 4).eval())


class Spoilt(torch.nn.Linear):
    """A model that an attempt to copy it breaks."""

    def __deepcopy__(self, memo):
        self.ending = self.spoil
        raise RuntimeError("half a copy")

    def forward(self, x):
        getattr(self, "ending", bool)()
        return super().forward(x)


def _spoilt(ending):
    def build(device):
        model = Spoilt(4, 4).eval()
        model.spoil = ending
        return model

    return _workload(build=build)


spoilt_raises = _spoilt(lambda: _raise(KeyError("spoilt")))
spoilt_segfaults = _spoilt(_segfault)
