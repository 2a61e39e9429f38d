"""What the processes that work for the service do first."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading


def begin_helper() -> None:
    """Leave an interrupt to the service, and end with it: a service that was killed
    cannot end its helpers, which would wait for work for ever.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_service, daemon=True).start()


def _end_with_service() -> None:
    service = multiprocessing.parent_process()
    if service is not None:
        service.join()
        os._exit(1)
