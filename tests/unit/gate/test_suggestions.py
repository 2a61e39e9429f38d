from __future__ import annotations

from perfgate.document.decision import Comparison, Part, Suggestion
from perfgate.judging.gate.explain import suggestions


def _regressed(metric: str, *parts: Part) -> Comparison:
    return Comparison(
        workload="encoder", shape="long", metric=metric, unit="1", better="lower", method="exact", outcome="regressed",
        gating=True, parts=list(parts),
    )  # fmt: skip


def _rules(found: list[Suggestion]) -> list[tuple[str, str | None]]:
    return [(suggestion.rule, suggestion.line) for suggestion in found]


def test_suggestions__format_casts__keep_one_format_and_no_word_of_loops() -> None:
    cast = Part(name="npu::npu_format_cast", base=0, head=4, line="model.py:22")
    found = suggestions(
        [
            _regressed("counters.framework_ops", cast),
            _regressed("counters.format_conversions", Part(name="TransData", base=0, head=4)),
        ]
    )
    assert _rules(found) == [("format-conversion", None)]


def test_suggestions__operator_that_falls_back__is_named_with_its_line() -> None:
    found = suggestions([_regressed("counters.fallbacks", Part(name="aten::i0", base=0, head=1, line="model.py:7"))])
    assert _rules(found) == [("host-fallback", "model.py:7")]
    assert found[0].message.startswith("aten::i0 has no kernel on this device")


def test_suggestions__operators_in_a_loop__still_said() -> None:
    add = Part(name="aten::add", base=1, head=7, line="model.py:9")
    assert _rules(suggestions([_regressed("counters.framework_ops", add)])) == [("small-ops", "model.py:9")]
