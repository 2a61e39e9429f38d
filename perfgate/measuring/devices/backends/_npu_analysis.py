"""``python -m perfgate.measuring.devices.backends._npu_analysis PATH…``: analyse recordings of torch_npu.

A path is one recording, or a folder of many.
"""

from __future__ import annotations

import os
import sys


def main(paths: list[str]) -> None:
    """Analyse all of them, those of a folder as many at a time as there are CPUs."""
    # torch first: it loads torch_npu itself since 2.5, where importing torch_npu alone fails.
    import torch  # noqa: F401
    from torch_npu.profiler import profiler

    from perfgate.measuring.devices.backends._npu_profiler import accepted

    at_once = max(1, len(os.sched_getaffinity(0)))
    for path in paths:
        profiler.analyse(**accepted(profiler.analyse, profiler_path=path, max_process_number=at_once))


if __name__ == "__main__":
    main(sys.argv[1:])
