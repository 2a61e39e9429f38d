from __future__ import annotations

import msgspec
import pytest

from perfgate.judging.forge.comment import read_state_line, state_line


class State(msgspec.Struct):
    workloads: list[str]


@pytest.mark.parametrize("name", ["a --> <h1>hello</h1>", "<!-- b", "--!>", "<script>", "ordinary"])
def test_state_line__hostile_name__ends_the_comment_only_at_its_end_and_reads_back(name: str) -> None:
    written = state_line("state", State([name]))

    assert written.count(">") == written.count("<") == 1
    assert written.startswith("<!--")
    assert written.endswith("-->")
    assert read_state_line(f"marker\n{written}\ntext", "state", State) == State([name])
