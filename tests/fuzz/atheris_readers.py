"""Fuzz every reader with coverage feedback: ``make fuzz SECONDS=3600``, or this file with ``--help``.

Each target runs in a process of its own for its share of the time. An exception that no reader documents is written down
once per place, with the input that caused it, and fuzzing goes on; a hang or too much memory ends the process, libFuzzer
keeps the input, and the target is started again. Exit code 1 says that there are findings.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

TIMEOUT_SECONDS = 5
MEMORY_MB = 2048
MAX_INPUT_BYTES = 64 << 10
# What libFuzzer puts together where random bytes would take forever.
TOKENS = (
    '"ph": "X"', '"ph": "B"', '"ph": "E"', '"ph": "i"', '"ph": "s"', '"ph": "f"', '"cat": "kernel"', '"cat": "cpu_op"',
    '"ts": ', '"dur": ', '"args": {', '"correlation": ', '"External id": ', '"Input Dims": ', '"request_id": ',
    '"traceEvents": [',
    '"schemaVersion": 1', '"process_name"', '"Ascend Hardware"', '"connection_id": ', "1e400", "-1", "4611686018427387904",
    "18446744073709551616", "1736408883704801.156", "NaN", "N/A", "AI_CORE", "HCCL", ",,,,", '"""', "\\t", "ProfilerStep#1",
    "request#1", "Start Time(us)", "Duration(us)", "Step Id", "Type", "NPU ID", "Chip ID", "Aicore Usage Rate(%)", "[N/A]",
)  # fmt: skip


def main() -> int:
    """Run all targets one after the other, or inside a process of its own the one that is named."""
    options = _options()
    folder = options.folder.resolve()
    if options.target:
        _fuzz(options.target, folder)
        return 0
    from tests.fuzz.targets import targets

    names = options.only or list(targets())
    for name in names:
        _run(name, folder, seconds=options.seconds / len(names))
    findings = [finding for name in names for finding in _findings(folder, name)]
    _say(folder, f"{len(findings)} findings in {folder / 'findings'}")
    return 1 if findings else 0


def _findings(folder: Path, name: str) -> list[Path]:
    """Return the inputs that a target did not survive; the traceback of each stands beside it."""
    return sorted(path for path in (folder / "findings").glob(f"{name}-*") if path.suffix != ".txt")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Fuzz the readers of recordings and of npu-smi and nvidia-smi.")
    parser.add_argument("--seconds", type=float, default=60, help="for all targets together")
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "build" / "fuzz", help="for corpus, findings and summary.txt"
    )
    parser.add_argument("--only", action="append", help="only this target (may be repeated)")
    parser.add_argument("--target", help=argparse.SUPPRESS)
    return parser.parse_args()


def _run(name: str, folder: Path, *, seconds: float) -> None:
    """Fuzz one target until its time is up, starting it again after a hang or lack of memory."""
    corpus, findings = folder / "corpus" / name, folder / "findings"
    _sow(name, corpus)
    findings.mkdir(parents=True, exist_ok=True)
    (folder / "tokens.dict").write_text("".join(f'"{_escaped(token)}"\n' for token in TOKENS))
    end = time.monotonic() + seconds
    begun = len(_findings(folder, name))
    executions = 0
    while (left := int(end - time.monotonic())) > 0:
        arguments = [f"-max_total_time={left}", f"-timeout={TIMEOUT_SECONDS}", f"-rss_limit_mb={MEMORY_MB}",
                     f"-max_len={MAX_INPUT_BYTES}", f"-dict={folder / 'tokens.dict'}", "-print_final_stats=1",
                     f"-artifact_prefix={findings}/{name}-", str(corpus)]  # fmt: skip
        command = [sys.executable, __file__, "--folder", str(folder), "--target", name]
        done = subprocess.run(
            command,
            env={**os.environ, "PERFGATE_FUZZ_ARGUMENTS": "\n".join(arguments)},
            stderr=subprocess.PIPE,
            check=False,
        )
        log = done.stderr.decode("utf-8", "replace")
        with (folder / f"{name}.log").open("a") as file:
            file.write(log)
        executions += next(
            (int(line.rpartition(" ")[2]) for line in log.splitlines() if "number_of_executed_units" in line), 0
        )
        if done.returncode and not any(word in log for word in ("ERROR: libFuzzer", "SUMMARY: libFuzzer")):
            _say(folder, f"{name}: the fuzzer itself does not run: {log[-2000:]}")
            return
    found = len(_findings(folder, name)) - begun
    _say(
        folder,
        f"{name}: {executions} runs in {seconds:.0f} s, corpus of {len(list(corpus.iterdir()))}, {found} findings",
    )


def _fuzz(name: str, folder: Path) -> None:
    import atheris

    with atheris.instrument_imports(include=["perfgate"], enable_loader_override=False):
        from tests.fuzz.targets import import_readers, scratch, targets

        import_readers()
    target = targets()[name]
    known: set[str] = set()
    with scratch() as scratch_folder:
        place = Path(scratch_folder)

        def one(data: bytes) -> None:
            try:
                target.survives(data, place)
            except Exception as error:  # noqa: BLE001 - whatever is not documented is what we look for
                _write_down(error, data, known, folder / "findings", name)

        atheris.Setup([sys.argv[0], *os.environ["PERFGATE_FUZZ_ARGUMENTS"].splitlines()], one)
        atheris.Fuzz()


def _write_down(error: Exception, data: bytes, known: set[str], findings: Path, name: str) -> None:
    """Keep the first input for each kind of error and place."""
    frames = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
    mark = hashlib.sha256("\n".join([type(error).__name__, *frames[-3:]]).encode()).hexdigest()[:12]
    if mark in known:
        return
    known.add(mark)
    path = findings / f"{name}-crash-{mark}"
    if not path.exists():
        path.write_bytes(data)
        path.with_suffix(".txt").write_text("".join(traceback.format_exception(error)))


def _sow(name: str, corpus: Path) -> None:
    from tests.fuzz.targets import targets

    corpus.mkdir(parents=True, exist_ok=True)
    for seed in targets()[name].seeds:
        (corpus / hashlib.sha1(seed).hexdigest()).write_bytes(seed)


def _escaped(token: str) -> str:
    return token.replace("\\", "\\\\").replace('"', '\\"')


def _say(folder: Path, text: str) -> None:
    print(text, flush=True)
    with (folder / "summary.txt").open("a") as file:
        file.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
