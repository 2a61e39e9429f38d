from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from perfgate.document.run import CounterSet
from perfgate.judging.advice.changes import on_changes
from tests.fakes.documents import make_decision
from tests.unit.counting.planted import BODY, FIRST_LINE, count, judged, regressed
from tests.wording import text_of

WORK = "counters.framework_ops"
COPIES = ("counters.copies", "counters.copy_bytes")
SYNC = "counters.syncs"
# What one more line does: the counters that fail the gate by its line, and those that fail without one.
PLANTS = {
    "launch": ("h.relu_()", {WORK}, set()),
    "two launches on a line": ("h.relu_().neg_()", {WORK}, set()),
    "copy": ("self.buffer.copy_(h)", {WORK, *COPIES}, set()),
    "conversion": (
        "h = h.double().float()",
        {WORK, *COPIES, "counters.double_ops"},
        {"counters.allocations", "memory.peak"},
    ),
    "value for Python": ("float(self.buffer[0, 0])", {WORK, SYNC}, set()),
    "branch on data": ("h = h if self.buffer[0, 0] == 0 else -h", {WORK, SYNC}, {"counters.allocations"}),
    "list": ("self.buffer.tolist()", {SYNC}, set()),
    "array": ("self.buffer.numpy()", {SYNC}, set()),
    "mask": ("self.buffer[self.buffer > 0]", {WORK, SYNC}, {"counters.allocations"}),
    "positions": ("torch.nonzero(self.buffer)", {WORK, SYNC}, set()),
    "explicit synchronize": ("torch.cpu.synchronize()", {SYNC}, set()),
}


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> list[CounterSet]:
    return count(tmp_path_factory.mktemp("plain") / "base", BODY)


def planted(line, position, body=BODY):
    return [*body[:position], line, *body[position:]]


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_planted_line__moves_its_counters_and_is_named(name: str, base: list[CounterSet], tmp_path: Path) -> None:
    line, named, unnamed = PLANTS[name]
    position = random.Random(name).randrange(1, len(BODY))
    head = count(tmp_path / "head", planted(line, position))

    found = regressed(judged(base, head))
    # Whether it lifts the peak depends on where it stands.
    found.pop("memory.peak", None)
    assert set(found) == named | unnamed - {"memory.peak"}
    assert {found[metric] for metric in named} == {f"model.py:{FIRST_LINE + position}"}


def test_planted_line__twin_of_a_line_that_moved_down__the_new_line_is_named(
    base: list[CounterSet], tmp_path: Path
) -> None:
    head = count(tmp_path / "head", [*BODY[:3], "", "", *BODY[3:], "h = h + 2"])

    assert regressed(judged(base, head))[WORK] == f"model.py:{FIRST_LINE + len(BODY) + 2}"


@pytest.mark.parametrize("seed", range(4))
def test_planted_line__random_model_and_place__named(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    lines = [*BODY, "h = h.tanh()", "h = h - h.mean()", "h = torch.cat([h[:4], h[4:]])", "h = h.clone()", "h = h * 3"]
    body = [rng.choice(lines) for _ in range(rng.randrange(5, 40))]
    position = rng.randrange(len(body) + 1)
    before = count(tmp_path / "base", body, repeats=2)
    after = count(tmp_path / "head", planted("float(h.sum())", position, body), repeats=2)

    found = regressed(judged(before, after))
    line = f"model.py:{FIRST_LINE + position}"
    found.pop("memory.peak", None)
    assert found == {WORK: line, SYNC: line, "counters.allocations": line}


def test_no_change__nothing_regresses(base: list[CounterSet], tmp_path: Path) -> None:
    found = judged(base, count(tmp_path / "head", BODY))

    assert {comparison.outcome for comparison in found} == {"unchanged"}


def test_leak__a_result_is_kept__bytes_and_the_line_that_made_it(base: list[CounterSet], tmp_path: Path) -> None:
    head = count(tmp_path / "head", [*BODY, "self.kept.append(h)"])

    # 8 x 16 floats each call, made by the softmax.
    kept = next(found for found in judged(base, head) if found.metric == "memory.kept")
    assert (kept.base, kept.head, kept.outcome) == (0, 512, "regressed")
    assert [(part.name, part.aspect, part.base, part.head, part.line) for part in kept.parts] == [
        ("aten::_softmax", "kept", 0, 1, f"model.py:{FIRST_LINE + 5}")
    ]
    assert set(regressed(judged(base, head))) == {"memory.kept"}


def test_leak__the_last_result_only_or_once__none(base: list[CounterSet], tmp_path: Path) -> None:
    last = count(tmp_path / "last", [*BODY, "self.result = h"])
    once = count(tmp_path / "once", [*BODY, "self.calls += 1", "if self.calls == 9:", "    self.kept.append(h)"])

    assert regressed(judged(base, last)) == {}
    assert regressed(judged(base, once)) == {}


def test_leak__every_second_result_is_kept__half_the_bytes_and_the_line(base: list[CounterSet], tmp_path: Path) -> None:
    head = count(tmp_path / "head", [*BODY, "self.calls += 1", "if self.calls % 2:", "    self.kept.append(h)"])

    kept = next(found for found in judged(base, head) if found.metric == "memory.kept")
    assert (kept.base, kept.head, kept.outcome) == (0, 256, "regressed")
    assert kept.parts[0].line == f"model.py:{FIRST_LINE + 5}"


IDENTITY = ("if x is self.seen:", "    return self.result", *BODY, "self.seen, self.result = x, h")
CONTENT = (
    "if self.seen is not None and torch.equal(x, self.seen):",
    "    return self.result",
    *BODY,
    "self.seen, self.result = x.clone(), h",
)


def test_cache__by_identity__saved_operators_with_the_reason(base: list[CounterSet], tmp_path: Path) -> None:
    found = {c.metric: c for c in judged(base, count(tmp_path / "head", IDENTITY))}

    saves = found["counters.repeat_saves"]
    # mm, relu, add, clone, mm, softmax.
    assert (saves.base, saves.head, saves.outcome, saves.gating) == (0, 6, "regressed", True)
    assert text_of(saves.reason).startswith("same-input caching")
    assert (saves.parts[0].name, saves.parts[0].aspect) == ("aten::mm", "saved")
    assert found[WORK].outcome == "unchanged"


def test_cache__by_content__saved_operators(base: list[CounterSet], tmp_path: Path) -> None:
    found = {c.metric: c for c in judged(base, count(tmp_path / "head", CONTENT))}

    # All six and the copy of the input; the comparison itself is made both times.
    assert (found["counters.repeat_saves"].head, found["counters.repeat_saves"].outcome) == (7, "regressed")


def test_half_precision_inside__suspect_with_the_line_but_no_failure(base: list[CounterSet], tmp_path: Path) -> None:
    head = count(tmp_path / "head", planted("h = (h.bfloat16() @ self.weight.bfloat16()).float()", 2))

    found = {c.metric: c for c in judged(base, head)}["counters.low_precision_ops"]
    assert (found.base, found.head, found.outcome, found.gating) == (0, 3, "inconclusive", False)
    assert {part.line for part in found.parts} == {f"model.py:{FIRST_LINE + 2}"}
    assert "no check" in text_of(found.reason)


AUTOCAST = ("with torch.autocast('cpu', dtype=torch.bfloat16):", "    h = h @ self.weight", "    h = h @ self.weight")


def test_autocast_added__suspect_at_the_line_that_enters_it(base: list[CounterSet], tmp_path: Path) -> None:
    head = count(tmp_path / "head", [*BODY, *AUTOCAST])

    found = {c.metric: c for c in judged(base, head)}["counters.low_precision_ops"]
    assert found.outcome == "inconclusive"
    assert {part.line for part in found.parts} == {f"model.py:{FIRST_LINE + len(BODY)}"}


def test_autocast_dropped__says_what_computes_in_full_and_where_autocast_was(tmp_path: Path) -> None:
    before = count(tmp_path / "base", [*BODY, *AUTOCAST])
    after = count(tmp_path / "head", [*BODY, "with torch.no_grad():", *AUTOCAST[1:]])

    comparisons = judged(before, after)
    found = {c.metric: c for c in comparisons}["counters.low_precision_ops"]
    assert (found.outcome, found.gating) == ("regressed", True)
    line = f"model.py:{FIRST_LINE + len(BODY)}"
    assert [(part.name, part.aspect, part.base, part.head, part.line) for part in found.parts] == [
        ("aten::mm", "full precision", 2, 4, line)
    ]
    assert text_of(found.reason).startswith("2 more operators per call compute in full precision (aten::mm")
    found = on_changes(make_decision("WARN", comparisons=comparisons))
    assert [suggestion.rule for suggestion in found] == ["dropped-precision"]


def test_low_precision_operators_gone__nothing_dropped(tmp_path: Path) -> None:
    before = count(tmp_path / "base", [*BODY, *AUTOCAST])
    after = count(tmp_path / "head", BODY)

    found = {c.metric: c for c in judged(before, after)}["counters.low_precision_ops"]
    assert (found.outcome, found.reason) == ("unchanged", None)


def test_half_precision_allowed_for_products__counted(base: list[CounterSet], tmp_path: Path) -> None:
    before = torch.get_float32_matmul_precision()
    try:
        head = count(tmp_path / "head", ["torch.set_float32_matmul_precision('medium')", *BODY])
    finally:
        torch.set_float32_matmul_precision(before)

    assert head[0].values["counters.low_precision_ops"] == 2
