"""Every reader against damaged and invented input: it answers, or refuses as documented; never anything else."""

from __future__ import annotations

import json
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfgate.measuring.devices.ascend.info_table import parse_info
from tests.fuzz.targets import CHROME, DATA, NATIVE_NPU, TRACE_VIEW, Target, scratch, targets

TARGETS = targets()
SECONDS, BYTES = 5.0, 256 << 20
few = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


def feed(target: Target, data: bytes) -> bool:
    """Return whether it answered; fails for what takes too long."""
    with scratch() as folder:
        began = time.process_time()  # its own: what others take from a busy machine is not the reader's
        answered = target.survives(data, Path(folder))
        assert time.process_time() - began < SECONDS
    return answered


# None stands for the bytes that are cut out, twice.
_odd = (b"", b'"', b"\\", b"{", b"]", b"null", b"-1", b"1e999", b"9" * 30, b"\xff", b"\0", b"N/A", b",", b"\n")
_pieces = st.one_of(st.sampled_from(_odd), st.binary(max_size=8), st.none())
_damages, _lengths = st.integers(1, 4), st.integers(0, 60)


@st.composite
def damaged(draw: st.DrawFn, seeds: tuple[bytes, ...]) -> bytes:
    """Draw a seed with a few bytes cut out, doubled, or replaced by others or by what parsers dislike."""
    data = draw(st.sampled_from(seeds))
    for _ in range(draw(_damages)):
        first = draw(st.integers(0, len(data)))
        last = min(len(data), first + draw(_lengths))
        piece = draw(_pieces)
        data = data[:first] + (data[first:last] * 2 if piece is None else piece) + data[last:]
    return data


_damaged = {name: damaged(target.seeds) for name, target in TARGETS.items()}


@pytest.mark.parametrize("name", sorted(TARGETS))
@given(data=st.data())
@few
def test_reader__damaged_input__answers_or_refuses(name: str, data: st.DataObject) -> None:
    feed(TARGETS[name], data.draw(_damaged[name]))


@pytest.mark.parametrize("name", sorted(TARGETS))
@given(data=st.binary(max_size=200))
@settings(few, max_examples=15)
def test_reader__noise__answers_or_refuses(name: str, data: bytes) -> None:
    feed(TARGETS[name], data)


# Not npu-smi and nvidia-smi: each of their seeds answers one question, and is put to all of them.
@pytest.mark.parametrize("name", sorted(TARGETS.keys() - {"npu-smi", "nvidia-smi"}))
def test_reader__its_seeds__answered(name: str) -> None:
    assert all(feed(TARGETS[name], seed) for seed in TARGETS[name].seeds)


_scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**65), 2**65), st.floats(allow_nan=False), st.text(max_size=6),
    st.sampled_from(("0", "1.5", "-3", "1736408883704801.156", "1e5")),
)  # fmt: skip
_names = st.sampled_from(
    ("ProfilerStep#1", "request#1", "aten::mm", "ncclKernel", "[memory]", "MEMCPY_ASYNC", "process_name", "")
)
_events = st.fixed_dictionaries(
    {"ph": st.sampled_from(tuple("XBEisfMC"))},
    optional={
        "name": st.one_of(_names, _scalars),
        "cat": st.sampled_from(("cpu_op", "kernel", "Kernel", "cuda_runtime", "gpu_memcpy", "ac2g", "user_annotation", None)),
        "pid": st.one_of(st.integers(0, 3), _scalars),
        "tid": st.one_of(st.integers(0, 3), _scalars),
        "ts": st.one_of(st.integers(0, 50), _scalars),
        "dur": st.one_of(st.integers(0, 50), _scalars),
        "id": st.one_of(st.integers(0, 3), _scalars),
        "args": st.one_of(
            st.dictionaries(
                st.sampled_from(("correlation", "device", "External id", "Input Dims", "request_id", "name", "labels",
                                 "Task Type", "connection_id", "type", "MHz")),
                st.one_of(st.integers(0, 3), _scalars, st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=2)),
                max_size=4,
            ),
            _scalars,
        ),
    },
)  # fmt: skip


@pytest.mark.parametrize(("name", "before"), [("kineto", NATIVE_NPU), ("chrome", CHROME), ("trace-view", TRACE_VIEW)])
@given(events=st.lists(_events, max_size=8))
@settings(few, max_examples=60)
def test_reader__invented_events__answers_or_refuses(name: str, before: Any, events: list[dict[str, Any]]) -> None:
    document = (
        {**before, "traceEvents": before["traceEvents"] + events} if isinstance(before, dict) else before + events
    )
    feed(TARGETS[name], json.dumps(document).encode())


def test_database__name_in_the_schema_is_no_text__refused() -> None:
    # Found by atheris: SQLite quotes the schema in its message, which Python then cannot decode.
    seed = TARGETS["database"].seeds[0]
    assert b"CREATE TABLE TASK (" in seed

    assert not feed(TARGETS["database"], seed.replace(b"CREATE TABLE TASK (", b"CREATE TAB\xa8E TASK ("))


def test_npu_smi__id_with_a_decimal__the_whole_number() -> None:
    # Found by atheris: one place took 2.0 for an id, the next did not.
    text = (DATA / "npu_smi" / "info_a3.txt").read_text()
    assert text.count("| 1     Ascend910") == 2  # two dies

    chips = parse_info(text.replace("| 1     Ascend910", "| 02.0  Ascend910")).chips

    assert [chip.npu_id for chip in chips] == [2, 2]


def test_kineto__half_a_megabyte_of_opened_brackets__refused_in_little_memory() -> None:
    tracemalloc.start()
    answered = feed(TARGETS["kineto"], b'{"schemaVersion": 1, "traceEvents": [' + b"[" * 500_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert not answered
    assert peak < BYTES
