from __future__ import annotations

import gzip
import tracemalloc

import pytest

from perfgate.document.files import canonical_bytes
from perfgate.errors import StoreError
from perfgate.judging.store import layout
from tests.unit.document.minimal import minimal_run

MEBIBYTE = 1 << 20


def test_unpack_document__a_few_bytes_that_unpack_to_more_than_a_document_may_hold__no_more_is_unpacked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The limit is lowered for the test's sake: what it limits is otherwise half a gigabyte."""
    document = canonical_bytes(minimal_run(), name="a run")
    assert layout.unpack_document(layout.pack_document(document), name="a run") == document

    monkeypatch.setattr(layout, "MAX_BYTES", 2 * MEBIBYTE)
    bomb = gzip.compress(b" " * (64 * MEBIBYTE))
    tracemalloc.start()
    try:
        assert len(layout.unpack_document(bomb, name="a run")) == 2 * MEBIBYTE + 1
        assert tracemalloc.get_traced_memory()[1] < 16 * MEBIBYTE
    finally:
        tracemalloc.stop()


def test_unpack_document__no_gzip__says_so() -> None:
    with pytest.raises(StoreError, match="cannot be read"):
        layout.unpack_document(b"no gzip", name="a run")
