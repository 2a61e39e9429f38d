"""``python -m perfgate.measuring.devices.backends._npu_analysis FOLDER``: analyse every recording of torch_npu in a folder."""

from __future__ import annotations

import os
import sys


def main(folder: str) -> None:
    """Analyse all of them, as many at a time as there are CPUs."""
    # torch first: it loads torch_npu itself since 2.5, where importing torch_npu alone fails.
    import torch  # noqa: F401
    from torch_npu.profiler import profiler

    from perfgate.measuring.devices.backends._npu_profiler import accepted

    at_once = max(1, len(os.sched_getaffinity(0)))
    profiler.analyse(**accepted(profiler.analyse, profiler_path=folder, max_process_number=at_once))


if __name__ == "__main__":
    main(sys.argv[1])
