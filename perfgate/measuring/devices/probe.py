"""``python -m perfgate.measuring.devices.probe KIND``: check a device for faults
without importing torch.

A separate process, because ``import torch`` itself fails with torch_npu installed and
CANN missing.
"""

from __future__ import annotations

import sys

import msgspec

from perfgate.errors import MeasuringError
from perfgate.measuring.devices.host import Host
from perfgate.measuring.devices.registry import examine_device


def main(arguments: list[str]) -> int:
    """Print a list of FitnessCheck as one line of JSON, the last on standard output;
    return the exit code.
    """
    if len(arguments) != 1:
        sys.stderr.write(
            "usage: python -m perfgate.measuring.devices.probe KIND, such as npu or npu:1\n"
        )
        return MeasuringError.exit_code
    try:
        checks = examine_device(arguments[0], Host())
    except MeasuringError as error:
        sys.stderr.write(f"{error}\n")
        return MeasuringError.exit_code
    sys.stdout.write("\n" + msgspec.json.encode(checks).decode() + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
