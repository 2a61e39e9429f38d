"""Damage recorded samples at random and count the losses that no note reports.

``python benchmarks/trace/losses.py --samples ../shared/ascend-samples --count 2000 --seed 1``.
A mutation is silent if the recording is read without any note that the intact one
lacks, although the work of a device (of the host, if no device was recorded) has
another number of events, or another total time, by more than a thousandth.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import itertools
import json
import random
import re
import shutil
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from perfgate import trace
from perfgate.document.decision import Policy
from perfgate.document.history import History
from perfgate.errors import PerfgateError
from perfgate.flows.run.from_profile import run_from_profile
from perfgate.judging.gate.decide import decide
from perfgate.trace.readers.contradictions import doubts_about

SHARE = 0.001
_EVENT = re.compile(rb"\}\s*,\s*\{")


class Sample(NamedTuple):
    """A recording, a file or a folder, and the file of it that is damaged."""

    recording: str
    file: str = ""


SAMPLES = (
    Sample("cpu-torch2.13/cnn-infer.pt.trace.json"),
    Sample("cpu-torch2.13/contig.pt.trace.json"),
    Sample("cuda-hta/a100_alexnet.json.gz"),
    Sample("cuda-hta/mi250_rocm62.json.gz"),
    Sample("cuda-hta/sampled_rank-0.json.gz"),
    Sample("torch-native-privateuse1/excerpt.pt.trace.json"),
    Sample("mstt-advisor/timeline_advice/trace_view.json.gz"),
    Sample("mstt-advisor/compute_advice/kernel_details.csv"),
    Sample(
        "msinsight-910B-alexnet-2501/text/level1/rank0_ascend_pt",
        "ASCEND_PROFILER_OUTPUT/kernel_details.csv",
    ),
    Sample(
        "msinsight-910B-alexnet-2501/text/level1/rank0_ascend_pt",
        "ASCEND_PROFILER_OUTPUT/trace_view.json.gz",
    ),
    Sample(
        "msinsight-910B-alexnet-2501/text/level0/rank0_ascend_pt",
        "ASCEND_PROFILER_OUTPUT/kernel_details.csv",
    ),
    Sample(
        "msinsight-910B-qwen3-cann8.3RC1-2511/level2/rank_0_ascend_pt",
        "ASCEND_PROFILER_OUTPUT/kernel_details.csv",
    ),
    Sample(
        "msinsight-910B-alexnet-2501/db/level1/rank0_ascend_pt",
        "ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_0.db",
    ),
    Sample(
        "msprof-910B-20cores-2608/PROF_PipeUtilization",
        "mindstudio_profiler_output/op_summary.csv",
    ),
)


class Reading(NamedTuple):
    """The work in a recording, and every note about it."""

    calls: int
    time_ns: int
    notes: frozenset[str]


class Outcome(NamedTuple):
    """What a mutation did, and what came of it: ``refused``, ``noted``, ``same``,
    ``silent`` or ``crash``;

    ``undetectable`` if no profiler's file of that content could be told from it,
    ``passed`` if the gate passed such a head.
    """

    seed: int
    sample: str
    kind: str
    done: str
    result: str
    share: float = 0.0


def read(path: Path) -> Reading:
    recording = trace.salvage(path)
    count = total = 0
    labelled = []
    for timeline in recording.timelines:
        table = trace.top(timeline, by="type", host=False)
        count += sum(row.count for row in table.rows)
        total += sum(row.total_ns for row in table.rows)
        labelled.append((timeline.label, timeline))
    notes = [
        *recording.incomplete,
        *recording.notes,
        *recording.absent.values(),
        *doubts_about(labelled),
    ]
    return Reading(count, total, frozenset(map(repr, notes)))


def events_of(text: bytes) -> list[tuple[int, int]]:
    """The places of the events of a list, without the first and the last."""
    borders = [match.span() for match in _EVENT.finditer(text)]
    return [
        (first[1] - 1, second[0] + 1) for first, second in itertools.pairwise(borders)
    ]


def lines_of(text: bytes) -> list[tuple[int, int]]:
    """The places of the rows of a table, without its titles."""
    places = []
    begin = text.index(b"\n") + 1
    while begin < len(text):
        end = text.find(b"\n", begin) + 1 or len(text)
        places.append((begin, end))
        begin = end
    return places


def some(
    lot: random.Random, places: list[tuple[int, int]], most: int
) -> tuple[int, int]:
    """The places of a run of events or rows."""
    first = lot.randrange(len(places))
    last = min(len(places) - 1, first + lot.choice((0, 0, 0, lot.randrange(most))))
    return places[first][0], places[last][1]


Mutated = tuple[bytes, str]


def cut(text: bytes, lot: random.Random) -> Mutated:
    end = lot.randrange(1, len(text))
    return text[:end], f"cut at {end}"


def hole(text: bytes, lot: random.Random) -> Mutated:
    begin = lot.randrange(len(text))
    size = lot.choice((1, 16, 512, 4096, len(text) // 5))
    return text[:begin] + text[begin + size :], f"{size} bytes removed at {begin}"


def zeros(text: bytes, lot: random.Random) -> Mutated:
    begin = lot.randrange(len(text))
    size = min(lot.choice((1, 16, 512, 4096)), len(text) - begin)
    filler = lot.choice((b"\0", b" ", b"0"))
    return text[:begin] + filler * size + text[
        begin + size :
    ], f"{size} bytes {filler!r} at {begin}"


def one_byte(text: bytes, lot: random.Random) -> Mutated:
    place = lot.randrange(len(text))
    byte = bytes((lot.randrange(256),))
    return text[:place] + byte + text[
        place + 1 :
    ], f"byte {byte!r} at {place}, {text[place : place + 1]!r}"


def doubled_bytes(text: bytes, lot: random.Random) -> Mutated:
    begin = lot.randrange(len(text))
    size = lot.choice((1, 100, 4096, len(text) // 3))
    return text[: begin + size] + text[begin:], f"{size} bytes at {begin} twice"


def doubled_file(text: bytes, lot: random.Random) -> Mutated:
    separator = lot.choice((b"", b"\n", b","))
    return text + separator + text, f"the file twice, {separator!r}"


def _places(text: bytes) -> list[tuple[int, int]]:
    return events_of(text) if text.lstrip()[:1] in b"[{" else lines_of(text)


def removed(text: bytes, lot: random.Random) -> Mutated:
    begin, end = some(lot, _places(text), 50)
    rest = text[end:]
    if text.lstrip()[:1] in b"[{":
        rest = rest.lstrip().removeprefix(b",")
    return text[:begin] + rest, f"removed {text[begin:end][:200]!r}"


def doubled(text: bytes, lot: random.Random) -> Mutated:
    begin, end = some(lot, _places(text), 50)
    separator = b"," if text.lstrip()[:1] in b"[{" else b""
    return text[:end] + separator + text[begin:], f"twice {text[begin:end][:200]!r}"


_NUMBER = re.compile(rb'"(ts|dur)"\s*:\s*("?)(-?[0-9.]+)')
_CELL = re.compile(rb"(?<=,)[0-9.]+(?=\t?,)")


def _number(text: bytes, lot: random.Random) -> tuple[int, int, str]:
    """The place of a time of an event, or of a number of a row, and a description."""
    begin, end = lot.choice(_places(text))
    piece = text[begin:end]
    if text.lstrip()[:1] in b"[{":
        found = [(match.start(3), match.end(3)) for match in _NUMBER.finditer(piece)]
    else:
        # The times of a row are among its first numbers.
        found = [match.span() for match in _CELL.finditer(piece)][:6]
    if not found:
        return _number(text, lot)
    first, last = lot.choice(found)
    return begin + first, begin + last, repr(piece[:200])


def bad_token(text: bytes, lot: random.Random) -> Mutated:
    begin, end, where = _number(text, lot)
    token = lot.choice(
        (
            b"NaN",
            b"null",
            b"",
            b"-1",
            b'"x"',
            b"1e400",
            b"N/A",
            b"Infinity",
            b"0x10",
            b"1,5",
            b"{}",
        )
    )
    return text[:begin] + token + text[
        end:
    ], f"{token!r} for {text[begin:end]!r} in {where}"


def other_time(text: bytes, lot: random.Random) -> Mutated:
    begin, end, where = _number(text, lot)
    digits = text[begin:end]
    place = lot.randrange(len(digits))
    longer = [
        digits[:place] + digits[place + 1 :],
        digits[:place] + b"7" + digits[place:],
        digits + b"000",
    ]
    changed = [b"0", digits[:place] + b"%d" % lot.randrange(10) + digits[place + 1 :]]
    token = lot.choice((*changed, *changed, *longer)) or b"0"
    return text[:begin] + token + text[end:], f"{token!r} for {digits!r} in {where}"


def shifted(text: bytes, lot: random.Random) -> Mutated:
    """All times from an event on are later, or earlier."""
    begin, _ = lot.choice(_places(text))
    step = lot.choice((-1, 1)) * 10 ** lot.randrange(3, 12)
    pattern = (
        _NUMBER
        if text.lstrip()[:1] in b"[{"
        else re.compile(rb"(,)()(1[0-9]{12,15}(?:\.[0-9]+)?)")
    )

    def later(match: re.Match[bytes]) -> bytes:
        if match[1] == b"dur":
            return match[0]
        whole, dot, rest = match[3].partition(b".")
        return (
            match[0][: match.start(3) - match.start()]
            + b"%d" % (int(whole) + step)
            + dot
            + rest
        )

    return text[:begin] + pattern.sub(
        later, text[begin:]
    ), f"from {begin} on {step} us later"


Change = Callable[[bytes, random.Random], Mutated]
# Of any file, and of files of events and rows.
ANY: tuple[Change, ...] = (cut, hole, zeros, one_byte, doubled_bytes)
KINDS: tuple[Change, ...] = (
    *ANY,
    doubled_file,
    removed,
    doubled,
    bad_token,
    other_time,
    shifted,
)


def _checksum(packed: bytes, lot: random.Random) -> Mutated:
    """A compressed file with another byte, a wrong checksum or length, or cut off."""
    way = lot.choice(("byte", "sum", "length", "cut", "tail"))
    if way == "cut":
        return packed[: lot.randrange(20, len(packed))], "compressed file cut"
    if way == "tail":
        return packed + b"\0" * 100, "zeros behind the compressed file"
    place = {
        "byte": lot.randrange(20, len(packed)),
        "sum": len(packed) - 6,
        "length": len(packed) - 2,
    }[way]
    return packed[:place] + bytes((packed[place] ^ 0x55,)) + packed[
        place + 1 :
    ], f"{way} of the compressed file"


def unpacked(text: bytes) -> bytes:
    return gzip.decompress(text) if text.startswith(b"\x1f\x8b") else text


def is_undetectable(intact: bytes, mutated: bytes, *, is_only_table: bool) -> bool:
    """Whether a profiler could have written the mutated file as it is, by a comparison
    of the two texts alone.

    A table whose last rows are missing, whose last row has other cells, or a kernel of
    which is shorter, if no other file has the same work. Valid JSON that only lacks work of a device together with
    its launches, and the last events of the host, if no analysis of them is in the
    file, and in which the event behind them may have another name; or in which only the
    times of one event differ, and it still nests in its track; or in which all later
    events of the host alone began later.
    """
    if intact.lstrip()[:1] not in b"[{":
        return is_only_table and (
            _lacks_the_end(intact, mutated) or _has_a_shorter_kernel(intact, mutated)
        )
    try:
        before, after = _events(intact), _events(mutated)
    except ValueError:
        return False
    if b'"Overlap Analysis"' in intact:
        return False
    texts, others = _counted(before), _counted(after)
    removed = [json.loads(text) for text in (texts - others).elements()]
    added = [json.loads(text) for text in (others - texts).elements()]
    renamed = _renamed(removed, added)
    if renamed is not None:
        # A hole from name to name: the rest of the event is another's.
        removed.remove(renamed)
        added = []
    if not added:
        return _whole_launches(removed, after)
    if len(added) == len(removed) == 1:
        return _fits(removed[0], added[0], after)
    return _is_pause(removed, added, after)


def _renamed(
    removed: list[dict[str, Any]], added: list[dict[str, Any]]
) -> dict[str, Any] | None:
    """The event of which the only added one differs by its name alone."""
    for event in removed:
        if len(added) == 1 < len(removed) and {**event, "name": ""} == {
            **added[0],
            "name": "",
        }:
            return event
    return None


def _is_pause(
    removed: list[dict[str, Any]],
    added: list[dict[str, Any]],
    everything: list[dict[str, Any]],
) -> bool:
    """Whether all events from some time on, of the host alone, are later by one span of
    time.
    """
    if len(added) != len(removed) or any(
        event.get("cat") == "kernel" for event in everything
    ):
        return False
    shifts = set()
    for before, after in zip(
        sorted(removed, key=_without_time), sorted(added, key=_without_time)
    ):
        if _without_time(before) != _without_time(after):
            return False
        shifts.add(Decimal(str(after["ts"])) - Decimal(str(before["ts"])))
    return len(shifts) == 1 and min(shifts) > 0


def _without_time(event: dict[str, Any]) -> str:
    return json.dumps({**event, "ts": 0}, sort_keys=True)


def _lacks_the_end(intact: bytes, mutated: bytes) -> bool:
    rows, others = intact.splitlines(keepends=True), mutated.splitlines(keepends=True)
    if len(others) > len(rows) or rows[: len(others) - 1] != others[:-1]:
        return False
    last = rows[len(others) - 1]
    return last == others[-1] or (
        others[-1].endswith(b"\n") and _cells(last) == _cells(others[-1])
    )


def _has_a_shorter_kernel(intact: bytes, mutated: bytes) -> bool:
    """Whether one duration of one row is the only difference, and less than it was."""
    titles, *rows = csv.reader(intact.decode("utf-8", "replace").splitlines())
    _, *others = csv.reader(mutated.decode("utf-8", "replace").splitlines())
    column = next(at for at, title in enumerate(titles) if "Duration" in title)
    changed = [pair for pair in zip(rows, others) if pair[0] != pair[1]]
    if len(rows) != len(others) or len(changed) != 1:
        return False
    ((before, after),) = changed
    if before[:column] + before[column + 1 :] != after[:column] + after[column + 1 :]:
        return False
    return 0 < float(after[column]) < float(before[column])


def _cells(row: bytes) -> int:
    return len(next(csv.reader([row.decode("utf-8", "replace")]), []))


def _events(text: bytes) -> list[dict[str, Any]]:
    """Raises ValueError for a text that is not JSON with a list of events."""
    document = json.loads(text.decode())
    events = document["traceEvents"] if isinstance(document, dict) else document
    return [event for event in events if isinstance(event, dict)]


def _counted(events: list[dict[str, Any]]) -> Counter[str]:
    return Counter(json.dumps(event, sort_keys=True) for event in events)


def _correlation(event: dict[str, Any]) -> object:
    arguments = event.get("args") or {}
    return arguments.get("correlation") if event.get("ph") == "X" else event.get("id")


def _whole_launches(removed: list[dict[str, Any]], rest: list[dict[str, Any]]) -> bool:
    """Whether no event that remains has the correlation of a removed one, and those
    that torch numbered were the last.
    """
    remaining = {_correlation(event) for event in rest} - {None}
    lost = [
        event
        for event in removed
        if event.get("ph") == "X" and event.get("cat") != "cuda_sync"
    ]
    if any(_correlation(event) in remaining for event in lost):
        return False
    # torch numbers the events of the host from 0, so only a lost end leaves no gap.
    last = max((_index(event) for event in rest), default=-1)
    return all(_index(event) > last for event in removed if _index(event) >= 0)


def _index(event: dict[str, Any]) -> int:
    return int((event.get("args") or {}).get("Ev Idx", -1))


def _fits(
    event: dict[str, Any], changed: dict[str, Any], everything: list[dict[str, Any]]
) -> bool:
    """Whether an event with other times has a length, crosses none of its track, and
    still holds the calls that it made.
    """
    if {**event, "ts": 0, "dur": 0} != {**changed, "ts": 0, "dur": 0}:
        return False
    try:
        begin, end = _span(changed)
    except (ArithmeticError, KeyError):
        return False
    number = (event.get("args") or {}).get("External id")
    for other in everything:
        is_near = other.get("ph") == "X" and (other.get("pid"), other.get("tid")) == (
            event.get("pid"),
            event.get("tid"),
        )
        if not is_near or other == changed:
            continue
        start, stop = _span(other)
        is_apart = stop <= begin or start >= end
        is_nested = (begin <= start and stop <= end) or (start <= begin and end <= stop)
        is_call = (
            number is not None
            and (other.get("args") or {}).get("External id") == number
        )
        if not (is_nested or is_apart) or (is_call and is_apart):
            return False
    return end > begin


def _span(event: dict[str, Any]) -> tuple[Decimal, Decimal]:
    begin = Decimal(str(event["ts"]))
    return begin, begin + Decimal(str(event.get("dur", 0)))


def _silent(_text: str) -> None:
    """Show no progress."""


class Mutator:
    """Reads mutations of the samples in a folder of its own."""

    def __init__(self, samples: Path, folder: Path, *, with_gate: bool) -> None:
        self._samples, self._folder, self._with_gate = samples, folder, with_gate
        self._intact: dict[Sample, Reading] = {}

    def outcome(self, seed: int) -> Outcome:
        lot = random.Random(seed)
        sample = lot.choice(SAMPLES)
        place = self._copy(sample, self._folder / "mutated")
        if sample not in self._intact:
            self._intact[sample] = read(place)
        intact = self._intact[sample]
        target = place / sample.file if sample.file else place
        packed = target.read_bytes()
        is_packed = target.suffix == ".gz"
        kind, mutated, done = self._mutated(packed, is_packed, lot)
        target.write_bytes(mutated)
        name = f"{sample.recording} {sample.file}".strip()
        try:
            reading = read(place)
        except PerfgateError:
            return Outcome(seed, name, kind, done, "refused")
        except Exception:  # noqa: BLE001 - reported with its mutation
            return Outcome(
                seed, name, kind, done + traceback.format_exc()[-600:], "crash"
            )
        share = max(
            abs(reading.calls - intact.calls) / max(intact.calls, 1),
            abs(reading.time_ns - intact.time_ns) / max(intact.time_ns, 1),
        )
        if self._with_gate and share > SHARE and self._verdict(sample, place) == "PASS":
            return Outcome(seed, name, kind, done, "passed", share)
        result = "same"
        if reading.notes - intact.notes or not reading.calls:
            # Without any work, the answer says that nothing was collected.
            result = "noted"
        elif share > SHARE:
            result = "silent"
            if is_undetectable(
                unpacked(packed),
                unpacked(mutated),
                is_only_table=self._is_only_table(place),
            ):
                result = "undetectable"
        return Outcome(seed, name, kind, done, result, share)

    def _verdict(self, sample: Sample, head: Path) -> str:
        """Of the gate, with the intact recording as base."""
        runs = []
        for recording in (head, self._copy(sample, self._folder / "intact")):
            try:
                runs.append(
                    run_from_profile(
                        self._folder,
                        recording,
                        self._folder / "run",
                        _silent,
                        keep_files=False,
                    )
                )
            except PerfgateError:
                return "refused"
        of_head, of_base = runs
        return decide(of_base, of_head, policy=Policy(), history=History()).verdict

    def _is_only_table(self, place: Path) -> bool:
        """Whether no other file of the recording has the work of its table."""
        others = ("op_statistic", "trace_view", "step_trace_time", "task_time")
        return place.is_file() or not any(
            found for name in others for found in place.rglob(f"{name}*")
        )

    def _mutated(
        self, packed: bytes, is_packed: bool, lot: random.Random
    ) -> tuple[str, bytes, str]:
        if is_packed and lot.random() < 0.12:
            mutated, done = _checksum(packed, lot)
            return "checksum", mutated, done
        text = gzip.decompress(packed) if is_packed else packed
        change = lot.choice(ANY if text.startswith(b"SQLite") else KINDS)
        mutated, done = change(text, lot)
        if is_packed:
            mutated = gzip.compress(mutated, 1)
        return change.__name__, mutated, done

    def _copy(self, sample: Sample, folder: Path) -> Path:
        source = self._samples / sample.recording
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        target = folder / source.name
        if not source.is_dir():
            shutil.copyfile(source, target)
            return target
        shutil.copytree(source, target)
        # The samples are packed to save space; profilers write these plain.
        for packed in (*target.rglob("*.csv.gz"), *target.rglob("*.db.gz")):
            packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
            packed.unlink()
        return target


_MUTATORS: list[Mutator] = []


def _start(samples: Path, folder: Path, with_gate: bool) -> None:
    _MUTATORS[:] = [
        Mutator(samples, Path(tempfile.mkdtemp(dir=folder)), with_gate=with_gate)
    ]


def _outcome(seed: int) -> Outcome:
    return _MUTATORS[0].outcome(seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=Path, required=True)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument(
        "--seed", type=int, default=1, help="the seeds follow SEED * 1,000,000"
    )
    parser.add_argument(
        "--gate",
        action="store_true",
        help="let the gate compare each head that lost something",
    )
    parser.add_argument("--only", type=int, nargs="*", help="these seeds alone")
    arguments = parser.parse_args()
    first = arguments.seed * 1_000_000
    seeds = arguments.only or range(first, first + arguments.count)
    began = time.monotonic()
    results: Counter[tuple[str, str]] = Counter()
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(
            2,
            initializer=_start,
            initargs=(arguments.samples, Path(folder), arguments.gate),
        ) as pool,
    ):
        for outcome in pool.map(_outcome, seeds, chunksize=10):
            results[outcome.kind, outcome.result] += 1
            if outcome.result in ("silent", "passed", "crash") or arguments.only:
                print(
                    f"{outcome.seed} {outcome.result} {outcome.share:.3%} {outcome.sample}: {outcome.kind}: {outcome.done}"
                )
    totals = Counter(
        dict.fromkeys(
            ("refused", "noted", "same", "undetectable", "silent", "passed", "crash"), 0
        )
    )
    for (kind, result), count in sorted(results.items()):
        totals[result] += count
        print(f"{kind:15} {result:10} {count}")
    print(dict(totals), f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
