"""Any bytes give a document or a DocumentError, never another exception, and soon."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from perfgate.document.files import canonical_bytes, parse_decision, parse_run
from perfgate.document.run import RunDocument
from perfgate.errors import DocumentError

from .minimal import minimal_run

WHOLE = canonical_bytes(minimal_run(), name="run")
TREE = json.loads(WHOLE)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


def read(data: bytes) -> None:
    read_as(parse_run, data)
    read_as(parse_decision, data)


def read_as(parse: Callable[..., Any], data: bytes) -> None:
    try:
        document = parse(data, name="x")
    except DocumentError as error:
        str(error).encode("utf-8")  # a message must be printable, whatever it quotes
    else:
        assert parse(canonical_bytes(document, name="x"), name="x") == document


@settings(deadline=2000, max_examples=300)
@given(st.binary(max_size=300))
def test_parse__any_bytes__document_or_document_error(data: bytes) -> None:
    read(data)


@settings(deadline=2000, max_examples=300)
@given(st.text(alphabet='{}[]":,\\u d8e1-.Nan', max_size=60))
def test_parse__json_like_text__document_or_document_error(text: str) -> None:
    read(text.encode())


@settings(deadline=2000, max_examples=300)
@given(st.integers(0, len(WHOLE)), st.binary(max_size=8), st.integers(0, 20))
def test_parse__document_with_a_few_bytes_replaced__document_or_document_error(at: int, data: bytes, cut: int) -> None:
    read(WHOLE[:at] + data + WHOLE[at + cut :])


@settings(deadline=2000, max_examples=300)
@given(st.sampled_from(sorted(TREE)), json_values)
def test_parse__any_value_in_any_field__document_or_document_error(field: str, value: object) -> None:
    read(json.dumps({**TREE, field: value}).encode("utf-8", errors="surrogatepass"))


@settings(deadline=2000, max_examples=200)
@given(st.floats(), st.text(st.characters(), max_size=20), st.integers())
def test_canonical_bytes__any_number_and_text__read_back_equal_or_refused(number: float, text: str, seed: int) -> None:
    run = minimal_run(value=number)
    run = msgspec.structs.replace(run, warnings=[text], session=msgspec.structs.replace(run.session, seed=seed))
    try:
        data = canonical_bytes(run, name="x")
    except DocumentError:
        return
    document = parse_run(data, name="x")
    assert isinstance(document, RunDocument)
    assert document == run
