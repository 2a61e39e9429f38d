"""Stand-in for CANN's msprof: exports what the software NPU recorded, in the files that torch_npu reads.

Answers the two calls torch_npu makes: `--export=on --output=PROF_FOLDER` and `--analyze=on --output=PROF_FOLDER`.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import communication
import tables
import timeline
from recording import Recording, read

# torch_npu 2.13 looks for the first csv every 0.1 s on a thread that its scheduler does not wait for: when the export
# and all other parsers end before that look, the scheduler ends too and drops the timeline and every view built on it
# (_task_manager.py: __listen with only NON_BLOCKING tasks left). CANN's export goes on long after its first file.
AFTER_THE_TABLES_S = 0.4


def main() -> int:
    """Run one call; return its exit status."""
    parser = argparse.ArgumentParser(prog="msprof", description=__doc__)
    parser.add_argument("--export", choices=("on", "off"), default="off")
    parser.add_argument("--analyze", choices=("on", "off"), default="off")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--type", choices=("text", "db"), default="text")
    parser.add_argument("--rule")
    arguments, unknown = parser.parse_known_args()
    if arguments.output is None or "on" not in (arguments.export, arguments.analyze):
        return refuse("only --export=on and --analyze=on with --output are built")
    if arguments.type == "db":
        return refuse("--type=db is not built, ask for text")
    if unknown:
        return refuse(f"{' '.join(unknown)} is not built")
    folders = [arguments.output] if (arguments.output / "host").is_dir() else sorted(arguments.output.glob("PROF_*"))
    if not folders:
        return refuse(f"no PROF_* folder in {arguments.output}")
    for folder in folders:
        recording = read(folder)
        if arguments.export == "on":
            export(recording)
        else:
            communication.write(recording)
    return 0


def export(recording: Recording) -> None:
    """Write the timeline and the tables; the timeline first, because torch_npu starts reading at the first csv."""
    folder = recording.folder / "mindstudio_profiler_output"
    folder.mkdir(exist_ok=True)
    stamp = time.strftime("%Y%m%d%H%M%S")
    timeline.write(recording, folder / f"msprof_{stamp}.json")
    tables.write(recording, folder, stamp)
    time.sleep(AFTER_THE_TABLES_S)


def refuse(reason: str) -> int:
    """Say why nothing was done."""
    sys.stderr.write(f"msprof of the software NPU: {reason}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
