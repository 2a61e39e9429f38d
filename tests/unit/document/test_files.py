import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np
import pytest

from perfgate.document.files import (
    canonical_bytes,
    content_sha256,
    parse_canonical_run,
    parse_decision,
    parse_run,
    read_decision,
    read_run,
    write_document,
)
from perfgate.document.job import Turn
from perfgate.document.message import quote
from perfgate.document.run import CounterSet, RunDocument
from perfgate.errors import DocumentError
from tests.each import each
from tests.fakes.documents import make_run
from tests.fakes.records import changed

from .minimal import minimal_decision, minimal_run

WORKER = {"layout_seed": 1, "cpus": [0], "start_up": 0.5, "steady": True}
REPLICATE = {
    "pair": 0,
    "arm": "ab",
    "member": "first",
    "workload": "encoder",
    "worker": WORKER,
    "shapes": {},
}


def on_cpus(*cpus: object) -> dict[str, object]:
    return {"replicates": [{**REPLICATE, "worker": {**WORKER, "cpus": list(cpus)}}]}


def with_changes(**changes: object) -> bytes:
    return json.dumps({**msgspec.to_builtins(minimal_run()), **changes}).encode()


def refusal(data: bytes) -> str:
    with pytest.raises(DocumentError) as caught:
        parse_run(data, name="run.json")
    with suppress(DocumentError):
        assert parse_canonical_run(data, name="run.json") is None
    return str(caught.value)


def test_parse_canonical_run__bytes_that_perfgate_writes_or_others_of_the_same_run__read_or_none() -> None:
    data = canonical_bytes(minimal_run(), name="run.json")
    assert parse_canonical_run(data, name="run.json") == minimal_run() == parse_run(data, name="run.json")
    without_defaults = {name: value for name, value in json.loads(data).items() if name != "jobs"}
    for other in (data + b"\n", b" " + data, with_changes(), json.dumps(without_defaults).encode()):
        assert parse_canonical_run(other, name="run.json") is None
        assert parse_run(other, name="run.json") == minimal_run()


@pytest.mark.parametrize(
    ("comparable", "seed", "is_allowed"),
    [
        ({"k" * 16_384: "x"}, 1, True),
        ({"k" * 16_385: "x"}, 1, False),
        ({"k": "x" * 65_536}, 1, True),
        ({"k": "x" * 65_537}, 1, False),
        ({"k": 'a "quoted" \\' * 6_000}, 1, False),
        ({"k": 'a "quoted" \\' * 500}, 1, True),
        (dict.fromkeys(map(str, range(10_000)), "x"), 1, True),
        (dict.fromkeys(map(str, range(10_001)), "x"), 1, False),
        ({"k": "x"}, 2**64 - 1, True),
        ({"k": "x"}, 2**64, False),
        ({"k": "x"}, -(2**63) - 1, False),
    ],
)
def test_parse_canonical_run__bounds_of_texts_keys_and_integers__as_the_schema_has_them(
    comparable: dict[str, str], seed: int, *, is_allowed: bool
) -> None:
    run = minimal_run()
    testbed = msgspec.structs.replace(run.testbed, comparable=comparable)
    session = msgspec.structs.replace(run.session, seed=seed)
    data = msgspec.json.encode(msgspec.structs.replace(run, testbed=testbed, session=session), order="deterministic")
    if is_allowed:
        assert parse_canonical_run(data, name="run.json") == parse_run(data, name="run.json")
    else:
        with pytest.raises(DocumentError):
            parse_run(data, name="run.json")
        with pytest.raises(DocumentError):
            parse_canonical_run(data, name="run.json")


def test_read_run__written_by_write_run__the_same_document(tmp_path: Path) -> None:
    write_document(tmp_path / "run.json", minimal_run())
    assert read_run(tmp_path / "run.json") == minimal_run()


def test_read_decision__written_by_write_decision__the_same_document(tmp_path: Path) -> None:
    write_document(tmp_path / "decision.json", minimal_decision())
    assert read_decision(tmp_path / "decision.json") == minimal_decision()


def test_content_sha256__written_file__is_the_hash_of_the_file(tmp_path: Path) -> None:
    write_document(tmp_path / "run.json", minimal_run())
    assert content_sha256(minimal_run()) == hashlib.sha256((tmp_path / "run.json").read_bytes()).hexdigest()


def test_content_sha256__integer_in_a_number_field__the_hash_survives_reading(tmp_path: Path) -> None:
    run = minimal_run(value=2)
    write_document(tmp_path / "run.json", run)
    assert content_sha256(read_run(tmp_path / "run.json")) == content_sha256(run)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_write_run__number_is_not_finite__refused_nothing_written(tmp_path: Path, number: float) -> None:
    with pytest.raises(
        DocumentError, match=r"\$\.checklist\.steps\[0\]\.values\[0\]\.value: .* is not a finite number"
    ):
        write_document(tmp_path / "run.json", minimal_run(value=number))
    assert list(tmp_path.iterdir()) == []


def test_write_run__field_of_a_wrong_type__refused_with_its_place(tmp_path: Path) -> None:
    counters = CounterSet(workload="w", shape="s", repeats="three", values={}, ops=[])  # type: ignore[arg-type]
    run = changed(minimal_run(), counters=[counters])
    with pytest.raises(DocumentError, match=r"\$\.checklist\.counters\[0\]\.repeats: 'three' is not of type 'integer'"):
        write_document(tmp_path / "run.json", run)


def test_write_run__lone_surrogate_in_a_text__refused_with_its_place(tmp_path: Path) -> None:
    run = msgspec.structs.replace(minimal_run(), warnings=[quote("fine"), quote("\udcff")])
    with pytest.raises(DocumentError, match=r"\$\.warnings\[1\]\.values\.text: text with a lone surrogate"):
        write_document(tmp_path / "run.json", run)


@each(
    "data, message",
    [
        (b"", "the file is empty; the file is truncated"),
        (b" \n", "the file is empty; the file is truncated"),
        (b"[]", "at $: an object was expected, not list"),
        (b"7", "an object was expected, not int"),
        (b"{}", "at $.schema: None where 'perfgate/run' was expected; give the file that this command reads"),
        (b'{"a": 1, "a": 2}', "at $: the key 'a' stands twice"),
        (b'{"x": {"a": [1, {"b": 1, "b": 1}]}}', "at $.x.a[1]: the key 'b' stands twice"),
        (b'{"x": [NaN]}', "at $.x[0]: NaN is not a finite number"),
        (b'{"x": -Infinity}', "at $.x: -Infinity is not a finite number"),
        (b'{"x": 1e999}', "at $.x: 1e999 is not a finite number"),
        (b'{"x": [0, 18446744073709551616]}', "at $.x[1]: an integer beyond 64 bits"),
        (b'{"x": ' + b"9" * 5000 + b"}", "at $.x: an integer beyond 64 bits"),
        (b'{"x": "\\ud800"}', "at $.x: text with a lone surrogate"),
        (b'{"\\udfff": 1}', "at $ (a key): text with a lone surrogate"),
        (b'{"x": "\xff"}', "at byte 7: not UTF-8"),
        (b'{"x": 1 "y"}', "at line 1, column 9: not JSON"),
        (b"\xef\xbb\xbf{}", "not JSON: Unexpected UTF-8 BOM"),
        (b'{"x": 1} {"y": 2}', "at line 1, column 10: not JSON: Extra data"),
        (b'{"x": "]]]]}', "at the end: the text ends in the middle; the file is truncated"),
        (b'{"x": [1, 2', "at the end: the text ends in the middle; the file is truncated"),
        (b'{"x": "a\\\\\\"', "at the end: the text ends in the middle; the file is truncated"),
    ],
)
def test_parse_run__not_a_strict_json_document__refused_with_place(data: bytes, message: str) -> None:
    assert message in refusal(data)
    assert refusal(data).startswith("run.json: at ")


def test_parse_run__cut_anywhere__named_as_truncated() -> None:
    whole = with_changes()
    for end in range(0, len(whole) - 1, 7):
        assert "truncated" in refusal(whole[:end])


def as_json(text: str) -> dict[str, object]:
    return {"code": "quote", "values": {"text": text}}


def test_parse_run__brackets_and_escapes_inside_texts__read() -> None:
    texts = ["[" * 99, '\\"{{{', "\\", '"', "\U0001f600", "}]"]
    assert parse_run(with_changes(warnings=[as_json(text) for text in texts]), name="run.json").warnings == [
        quote(text) for text in texts
    ]


def test_parse_run__surrogate_pair_in_escapes__one_character() -> None:
    data = with_changes(warnings=[as_json("SMILE")]).replace(b"SMILE", b"\\ud83d\\ude00")
    assert parse_run(data, name="run.json").warnings == [quote("\U0001f600")]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"extra": 1}, "at $: Additional properties are not allowed ('extra' was unexpected)"),
        ({"project": 3}, "at $.project: 3 is not of type 'string'"),
        ({"project": "x" * 70_000}, "at $.project: 'xxx"),
        ({"side": "left"}, "at $.side: 'left' is not one of ['base', 'head', None]"),
        ({"side": "\u202e\x1b"}, "at $.side: '\\u202e\\x1b' is not one of"),
        ({"workloads": None}, "at $.workloads: None is not of type 'array'"),
        (
            {"schema_version": 0},
            "version 0 was written by an older perfgate; this one reads version 1; measure again with this perfgate",
        ),
        ({"schema_version": -1}, "at $.schema_version: a version number was expected, found -1"),
        ({"schema_version": True}, "a version number was expected, found True"),
        ({"schema_version": "1"}, "a version number was expected, found '1'"),
        (
            {"schema_version": 2},
            "version 2 was written by a newer perfgate; this one reads version 1; upgrade perfgate",
        ),
        ({"schema": "perfgate/decision"}, "'perfgate/decision' where 'perfgate/run' was expected"),
        ({"checklist": {"steps": [{"$ref": "http://127.0.0.1:1/x"}]}}, "at $.checklist.steps[0]"),
    ],
)
def test_parse_run__not_what_the_schema_says__refused_with_place(changes: dict[str, object], message: str) -> None:
    assert message in refusal(with_changes(**changes))
    assert len(refusal(with_changes(**changes))) < 700


@pytest.mark.parametrize("number", [-1, 2**53 + 1])
@pytest.mark.parametrize("field", ["pair", "start", "round"])
def test_parse_run__number_of_a_pair_that_nobody_counts_to__refused_with_place(field: str, number: int) -> None:
    run = make_run()
    replicate = msgspec.structs.replace(run.pairs.replicates[0], **{field: number})
    data = msgspec.json.encode(changed(run, replicates=[replicate]))
    assert f"$.pairs.replicates[0].{field}" in refusal(data)


@pytest.mark.parametrize("count", [-(2**53) - 1, 2**53 + 1])
@pytest.mark.parametrize("field", ["work", "counters"])
def test_parse_run__count_of_a_turn_whose_sums_are_no_integers__refused_with_place(field: str, count: int) -> None:
    turn = Turn(workload="job", start=0, quad=0, place=0, seconds=1.0, values={}, **{field: {"requests": count}})
    data = msgspec.json.encode(changed(make_run(), turns=[turn]))
    assert f"$.jobs.turns[0].{field}" in refusal(data)


@pytest.mark.parametrize("item", ["1", 1.5, True, None, -(2**63) - 1])
def test_parse_run__array_of_integers_holds_something_else__refused(item: object) -> None:
    assert "at $.pairs.replicates[0].worker.cpus[1]" in refusal(with_changes(pairs=on_cpus(0, item)))


def test_parse_run__array_of_integers__read() -> None:
    data = with_changes(pairs=on_cpus(0, 2**64 - 1, -(2**63)))
    assert parse_run(data, name="x").pairs.replicates[0].worker.cpus == [0, 18446744073709551615, -9223372036854775808]


def test_read_run__file_larger_than_the_limit__refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a sparse terabyte: reading it would not end
    with pytest.raises(DocumentError, match="1099511627776 bytes, where at most 67108864 are read"):
        read_run(path)


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"b":'])
def test_read_run__sixty_megabytes_of_nesting__refused_fast(tmp_path: Path, opening: bytes) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(opening * (60_000_000 // len(opening)))
    with pytest.raises(DocumentError, match="nested deeper than 32"):
        read_run(path)


@pytest.mark.parametrize("filling", [b"[],", b"1,", b'"",', b'"\\\\",', b"{},"])
def test_parse_run__millions_of_small_values__refused_before_parsing(filling: bytes) -> None:
    assert "more than 2000000 values" in refusal(b"[" + filling * 5_000_000 + b"1]")


def test_read_run__not_there__says_so(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"run\.json: cannot be read .*No such file"):
        read_run(tmp_path / "run.json")


def test_read_run__folder_or_pipe__refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(DocumentError, match="not a regular file"):
            read_run(path)


def test_read_run__path_with_nul__refused() -> None:
    with pytest.raises(DocumentError, match="cannot be read"):
        read_run(Path("a\0b"))


def test_read_run__type_is_right__strictly_a_run_document(tmp_path: Path) -> None:
    write_document(tmp_path / "decision.json", minimal_decision())
    with pytest.raises(DocumentError, match="'perfgate/decision' where 'perfgate/run' was expected"):
        read_run(tmp_path / "decision.json")
    assert isinstance(parse_run(with_changes(), name="x"), RunDocument)


def test_write_run__number_of_numpy__refused_not_a_crash(tmp_path: Path) -> None:
    run = msgspec.structs.replace(minimal_run(), warnings=[np.int64(3)])  # type: ignore[list-item]
    with pytest.raises(DocumentError, match="bug in perfgate"):
        write_document(tmp_path / "run.json", run)


@pytest.mark.parametrize(
    "policy", [{"looks": []}, {"looks": [0, 8]}, {"looks": [8, 8]}, {"alpha": 0.0}, {"alpha_ok": 0.5}]
)
def test_read_decision__policy_that_no_test_can_be_made_with__document_error(tmp_path: Path, policy: dict) -> None:
    path = tmp_path / "decision.json"
    write_document(path, minimal_decision())
    document = json.loads(path.read_text())
    document["procedure"]["policy"].update(policy)
    path.write_text(json.dumps(document))
    with pytest.raises(DocumentError, match=next(iter(policy))):
        read_decision(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pairs": "x"}, "at $.comparisons[0].pairs: 'x' is not of type 'integer'"),
        ({"costless": True}, "at $.comparisons[0]: Additional properties are not allowed ('costless' was unexpected)"),
    ],
)
def test_parse_decision__comparison_with_a_wrong_field__error_of_its_own_kind(
    changes: dict[str, object], message: str
) -> None:
    decision = msgspec.to_builtins(minimal_decision())
    decision["comparisons"][0].update(changes)
    with pytest.raises(DocumentError) as caught:
        parse_decision(json.dumps(decision).encode(), name="decision.json")
    assert message in str(caught.value)
