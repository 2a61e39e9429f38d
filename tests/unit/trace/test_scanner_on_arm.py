"""The scanner on a processor with NEON: the same columns as here. Needs gcc for aarch64, and qemu's emulation of a process."""

from __future__ import annotations

import gzip
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.samples import recorded

ROOT = Path(__file__).parents[3]
COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, (COMPILER, EMULATOR, "cc"))),
    reason=f"{COMPILER} and {EMULATOR} are not here (Debian: gcc-aarch64-linux-gnu, libc6-dev-arm64-cross, qemu-user)",
)


def digests(folder: Path, files: list[Path], *, compiler: str, runner: tuple[str, ...] = ()) -> list[str]:
    """What the scanner says of each file, compiled for the processor of a compiler."""
    program = folder / compiler
    source = ROOT / "tests/fuzz/digest.c"
    subprocess.run([compiler, "-std=c11", "-O2", "-static", str(source), "-o", str(program)], check=True)
    done = subprocess.run([*runner, str(program), *map(str, files)], check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def test_scan__seeds_of_the_fuzzers__as_on_this_processor(tmp_path: Path) -> None:
    seeds = sorted((ROOT / "tests/fuzz/seeds/events").iterdir())
    long_texts = tmp_path / "long.json"
    # Strings of every length around the width of a register, with what ends or interrupts one at every place.
    events = [
        f'{{"ph": "X", "name": "{"x" * n}{end}{"y" * n}", "ts": {n}.5}}' for n in range(80) for end in ("", "\\n", "é")
    ]
    long_texts.write_text(f"[{', '.join(events)}]")
    files = [*seeds, long_texts]

    there = digests(tmp_path, files, compiler=COMPILER, runner=(EMULATOR,))

    assert len(there) == len(files)
    assert there[-1].startswith("240 events, state 1 ")
    assert there == digests(tmp_path, files, compiler="cc")


@pytest.mark.recordings
def test_scan__every_recorded_sample__as_on_this_processor(tmp_path: Path) -> None:
    files = []
    for number, path in enumerate(sorted(recorded().rglob("*.json*"))):
        if path.is_file():
            files.append(tmp_path / f"{number}.json")
            files[-1].write_bytes(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())
    assert len(files) > 20

    assert digests(tmp_path, files, compiler=COMPILER, runner=(EMULATOR,)) == digests(tmp_path, files, compiler="cc")
