from __future__ import annotations

from pathlib import Path

import pytest
import torch

from perfgate.document.run import CounterSet
from tests.unit.counting.planted import BODY, FIRST_LINE, count, judged, regressed
from tests.wording import text_of

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> list[CounterSet]:
    return count(tmp_path_factory.mktemp("compiled") / "base", BODY, compiled=True)


def test_compiled__whole_graph_and_two_shapes__no_break_and_no_recompile(base: list[CounterSet]) -> None:
    assert [counted.values["counters.graph_breaks"] for counted in base] == [0, 0]
    assert [counted.values["counters.recompiles"] for counted in base] == [0, 0]
    # Under a dispatch mode nothing is compiled: the operators are those of the plain call.
    assert base[0].values["counters.framework_ops"] == 6


def test_compiled__one_graph_break__named_with_line_and_reason(base: list[CounterSet], tmp_path: Path) -> None:
    head = count(tmp_path / "head", [*BODY[:3], "print(end='')", *BODY[3:]], compiled=True)

    found = {c.metric: c for c in judged(base, head)}["counters.graph_breaks"]
    assert (found.base, found.head, found.outcome) == (0, 1, "regressed")
    assert [part.line for part in found.parts] == [f"model.py:{FIRST_LINE + 3}"]
    assert "builtin" in found.parts[0].name
    assert regressed(judged(base, head)) == {"counters.graph_breaks": f"model.py:{FIRST_LINE + 3}"}


def test_compiled__a_branch_on_data__break_and_synchronisation(base: list[CounterSet], tmp_path: Path) -> None:
    body = [*BODY[:3], "h = h if h.sum() > 0 else -h", *BODY[3:]]
    found = regressed(judged(base, count(tmp_path / "head", body, compiled=True)))

    line = f"model.py:{FIRST_LINE + 3}"
    assert found["counters.graph_breaks"] == found["counters.syncs"] == line
    assert "counters.recompiles" not in found


def test_compiled__a_guard_that_fails_on_every_call__recompiles_named_with_the_guard(
    base: list[CounterSet], tmp_path: Path
) -> None:
    body = ["self.kept.append(1)", "h = h + len(self.kept)", *BODY]
    head = count(tmp_path / "head", body, compiled=True)

    found = {c.metric: c for c in judged(base, head)}["counters.recompiles"]
    assert (found.base, found.outcome) == (0, "regressed")
    assert found.head == 3
    assert [part.name for part in found.parts] == ["len(self.kept) == N"]
    # torch 2.7 tells where the function begins, and no nearer.
    line = FIRST_LINE - 2 if torch.__version__.startswith("2.7.") else FIRST_LINE
    assert [part.line for part in found.parts] == [f"model.py:{line}"]


def test_compiled__counted_twice_in_one_process__same_numbers(base: list[CounterSet], tmp_path: Path) -> None:
    again = count(tmp_path / "base", BODY, compiled=True)

    assert [counted.values for counted in again] == [counted.values for counted in base]


def test_not_compiled__no_counter_of_the_compiler(tmp_path: Path) -> None:
    _forget_what_was_compiled()
    (plain,) = count(tmp_path / "base", BODY)

    assert not {"counters.graph_breaks", "counters.recompiles"} & plain.values.keys()


def test_compiled__only_the_base__told_and_not_judged(base: list[CounterSet], tmp_path: Path) -> None:
    _forget_what_was_compiled()
    found = {c.metric: c for c in judged(base, count(tmp_path / "head", BODY))}["counters.graph_breaks"]

    assert (found.base, found.head, found.outcome, found.gating) == (0, None, "not_comparable", False)
    assert text_of(found.reason) == "only the base has it"


def _forget_what_was_compiled():
    from torch._dynamo.utils import counters  # takes a second

    counters.clear()
