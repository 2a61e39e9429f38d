"""A lost pin_memory and non_blocking, on the fake device: the copy is named first, with the line that made it."""

from __future__ import annotations

from pathlib import Path

from perfgate.judging.report.render.comment import CommentContext, render_comment
from tests.causes import feeding
from tests.causes.comments import first_cause, title, verdict
from tests.traps.virtual import WORKLOAD, Call, VirtualGate, judged, with_counts

HERE = Path(__file__).parent
LINE = f"feeding.py:{feeding.waiting.__code__.co_firstlineno + 2}"


def test_comment__lost_pinned_memory__copy_named_first_with_its_line(tmp_path: Path) -> None:
    comment = commented(feeding.ahead, feeding.waiting, tmp_path)

    assert verdict(comment) == "FAIL"
    named = f"1 more `Memcpy HtoD (Pageable -> Device)` at `{LINE}`"
    assert first_cause(comment) == named, comment
    assert title(comment).endswith(named)
    assert f"synchronisations per call · `{WORKLOAD}` | 0 | 1 | 1 more (exact) | 0 | see 1 |" in comment
    assert f"1 more `aten::copy_` at `{LINE}`; in `{WORKLOAD}`, 0 → 1" in comment


def test_comment__pinned_memory_on_both_sides__passes(tmp_path: Path) -> None:
    comment = commented(feeding.ahead, feeding.ahead, tmp_path)

    assert verdict(comment) == "PASS", comment


def commented(base: Call, head: Call, folder: Path) -> str:
    """Measure pairs of both calls, and each by itself with step 4: what it dispatches, and where its time goes."""
    documents = VirtualGate(lambda: base, lambda: head, profiled=True).documents()
    counted = (
        with_counts(documents[0], base, folder / "base", root=HERE),
        with_counts(documents[1], head, folder / "head", root=HERE),
    )
    return render_comment(judged(*counted), CommentContext(marker="<!-- perfgate -->"))
