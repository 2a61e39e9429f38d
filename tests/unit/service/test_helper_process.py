"""Processes that work for the service end with it, however it ends."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.waiting import wait_until

SERVICE = """
import multiprocessing, os, sys, time
from concurrent.futures import ProcessPoolExecutor
from perfgate.service.helper_process import begin_helper

context = multiprocessing.get_context(sys.argv[1])
pool = ProcessPoolExecutor(1, mp_context=context, initializer=begin_helper)
print(pool.submit(os.getpid).result(), flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("start", ["spawn", "forkserver"])
def test_begin_helper__service_is_killed__ends_too(start: str) -> None:
    with subprocess.Popen([sys.executable, "-c", SERVICE, start], stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        helper = int(service.stdout.readline())
        service.kill()
    wait_until(lambda: not _is_running(helper))


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
