"""Call stacks of small tables written by hand, and of recorded samples."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from perfgate import trace
from perfgate.document.flame import FLAME_KINDS, FlameTree, node_totals, side_by_side
from perfgate.trace.analysis import flame
from perfgate.trace.analysis.flame import flame_tree
from perfgate.trace.analysis.stacks import attributed_share, frame, nearest_above, project_places, stacks_of
from perfgate.trace.model.events import EventKind, EventTable, EventTableBuilder
from perfgate.trace.scanner import library

from .ascend import ALEXNET, sample

MAIN, OTHER, STREAM = ("1", "1"), ("1", "2"), ("0", "7")


def table(*rows: tuple[str, EventKind, int, int, tuple[str, str], int]) -> EventTable:
    builder = EventTableBuilder()
    for name, kind, start, duration, track, correlation in rows:
        builder.add(start, duration, track=track, name=name, kind=kind, correlation=correlation)
    return builder.table()


TWO_CALLS = table(
    ("serve.py(1): loop", "python", 0, 1000, MAIN, -1),
    ("perfgate.call", "annotation", 100, 200, MAIN, -1),
    ("model.py(5): forward", "python", 110, 180, MAIN, -1),
    ("aten::linear", "host_op", 120, 60, MAIN, -1),
    ("aten::addmm", "host_op", 130, 40, MAIN, -1),
    ("cudaLaunchKernel", "runtime", 140, 10, MAIN, 1),
    ("perfgate.call", "annotation", 400, 200, MAIN, -1),
    ("model.py(5): forward", "python", 410, 180, MAIN, -1),
    ("aten::linear", "host_op", 420, 60, MAIN, -1),
    ("aten::addmm", "host_op", 430, 40, MAIN, -1),
    ("cudaLaunchKernel", "runtime", 440, 10, MAIN, 2),
    ("between calls", "host_op", 350, 10, MAIN, -1),
    ("aten::mm", "host_op", 425, 20, OTHER, -1),
    ("sgemm", "compute", 160, 100, STREAM, 1),
    ("sgemm", "compute", 650, 140, STREAM, 2),
    ("unknown", "compute", 500, 60, STREAM, 9),
)


def paths(tree: FlameTree) -> dict[str, tuple[float, float, float]]:
    """Own and total nanoseconds and the count in a unit, by the path of names."""
    names: list[str] = []
    for parent, name in zip(tree.parent, tree.name):
        names.append((names[parent] + " > " if parent >= 0 else "") + tree.texts[name])
    totals = node_totals(tree, tree.head)
    return {name: (round(one.own * 1e9, 3), round(one.total * 1e9, 3), one.count) for name, one in zip(names, totals)}


def test_flame_tree__two_calls__host_by_nesting_and_kernels_under_their_launch() -> None:
    under = "perfgate.call > model.py: forward > aten::linear > aten::addmm > cudaLaunchKernel"

    assert paths(flame_tree(stacks_of(TWO_CALLS), "x")) == {
        "thread 1": (0, 200, 0),
        "thread 1 > perfgate.call": (20, 200, 1),
        "thread 1 > perfgate.call > model.py: forward": (120, 180, 1),
        "thread 1 > perfgate.call > model.py: forward > aten::linear": (20, 60, 1),
        "thread 1 > perfgate.call > model.py: forward > aten::linear > aten::addmm": (30, 40, 1),
        f"thread 1 > {under}": (10, 10, 1),
        "thread 2": (0, 10, 0),
        "thread 2 > aten::mm": (10, 10, 0.5),
        "stream 7": (0, 150, 0),
        "stream 7 > unknown": (30, 30, 0.5),
        "stream 7 > perfgate.call": (0, 120, 0),
        "stream 7 > perfgate.call > model.py: forward": (0, 120, 0),
        "stream 7 > perfgate.call > model.py: forward > aten::linear": (0, 120, 0),
        "stream 7 > perfgate.call > model.py: forward > aten::linear > aten::addmm": (0, 120, 0),
        f"stream 7 > {under}": (0, 120, 0),
        f"stream 7 > {under} > sgemm": (120, 120, 1),
    }


def test_stacks__two_calls__share_and_lost_launch() -> None:
    stacks = stacks_of(TWO_CALLS)

    assert attributed_share(stacks) == pytest.approx(240 / 300)
    assert (stacks.unit, stacks.units, stacks.unlaunched, stacks.cut) == ("call", 2, 1, 0)


def test_flame_tree__places__function_itself_and_of_all_else_the_project_function_around() -> None:
    tree = flame_tree(stacks_of(TWO_CALLS), "x")
    places = {tree.texts[name]: at for name, at in zip(tree.name, tree.place)}
    assert tree.texts[places["model.py: forward"]] == "model.py:5"
    assert tree.texts[places["sgemm"]] == "model.py:5"
    assert places["perfgate.call"] == -1


def test_flame_tree__more_nodes_than_wanted__the_smallest_are_time_of_their_callers() -> None:
    whole, folded = flame_tree(stacks_of(TWO_CALLS), "x"), flame_tree(stacks_of(TWO_CALLS), "x", most_nodes=6)

    assert (len(folded.parent), folded.omitted.folded) == (6, len(whole.parent) - 6)
    assert sum(folded.sides[0].own) == sum(whole.sides[0].own) - 20  # thread 2 and all in it are left out
    assert "thread 1 > perfgate.call > model.py: forward" in paths(folded)


def test_stacks__call_without_its_end__is_counted_as_cut() -> None:
    assert stacks_of(table(("a", "host_op", 0, 100, MAIN, -1), ("b", "host_op", 50, 100, MAIN, -1))).cut == 1


def test_stacks__no_python__a_cpu_has_no_share_to_tell() -> None:
    assert attributed_share(stacks_of(table(("a", "host_op", 0, 100, MAIN, -1)))) is None
    assert attributed_share(stacks_of(table())) is None


def test_flame_tree__nothing_recorded__empty() -> None:
    assert flame_tree(stacks_of(table()), "x").parent == []


def test_flame_tree__requests__time_apart_and_one_stack() -> None:
    builder = EventTableBuilder()
    for number, length in ((1, 100), (2, 50)):
        builder.add(number * 1000, 200, track=MAIN, name=f"request#{number}", kind="annotation", correlation=-1,
                    request=str(number))  # fmt: skip
        builder.add(number * 1000 + 10, length, track=MAIN, name="aten::mm", kind="host_op", correlation=-1)
    tree = flame_tree(stacks_of(builder.table()), "x")

    assert tree.requests == ["1", "2"]
    assert [tree.texts[name] for name in tree.name] == ["thread 1", "request", "aten::mm"]
    assert list(zip(tree.head.node, tree.head.request, tree.head.own)) == [
        (1, 0, 100), (1, 1, 150), (2, 0, 100), (2, 1, 50)
    ]  # fmt: skip


def test_flame_tree__call_that_leaves_all_its_time_to_another__has_run_too() -> None:
    rows = []
    for start, length in ((0, 100), (1000, 100), (2000, 99)):
        rows.append(("model.py(1): wrapper", "python", start, 100, MAIN, -1))
        rows.append(("model.py(5): work", "python", start, length, MAIN, -1))
    assert paths(flame_tree(stacks_of(table(*rows)), "x")) == {
        "thread 1": (0, 300, 0),
        "thread 1 > model.py: wrapper": (1, 300, 3),
        "thread 1 > model.py: wrapper > model.py: work": (299, 299, 3),
    }


def test_flame_tree__deeper_than_any_page__time_stays() -> None:
    rows = [(f"f{depth}", "host_op", depth, 2000 - 2 * depth, MAIN, -1) for depth in range(600)]
    tree = flame_tree(stacks_of(table(*rows)), "x")
    assert len(tree.parent) == 257
    assert sum(tree.head.own) == 2000


def test_side_by_side__function_moved_and_operator_added__one_tree_of_both() -> None:
    base = flame_tree(stacks_of(table(("m.py(5): f", "python", 0, 100, MAIN, -1),
                                      ("aten::mm", "host_op", 10, 50, MAIN, -1))), "b")  # fmt: skip
    head = flame_tree(stacks_of(table(("m.py(9): f", "python", 0, 140, MAIN, -1),
                                      ("aten::mm", "host_op", 10, 50, MAIN, -1),
                                      ("aten::clone", "host_op", 70, 30, MAIN, -1))), "h")  # fmt: skip
    both = side_by_side(base, head)

    assert [(FLAME_KINDS[kind], both.texts[name]) for kind, name in zip(both.kind, both.name)] == [
        ("thread", "thread 1"), ("python", "m.py: f"), ("host_op", "aten::mm"), ("host_op", "aten::clone")
    ]  # fmt: skip
    assert both.texts[both.place[1]] == "m.py:9"
    assert [round(one.total * 1e9) for one in node_totals(both, both.base)] == [100, 100, 50, 0]
    assert [round(one.total * 1e9) for one in node_totals(both, both.head)] == [140, 140, 50, 30]


@pytest.mark.parametrize(
    ("name", "expected", "project"),
    [
        ("perf/model.py(12): forward", ("perf/model.py: forward", "perf/model.py:12"), True),
        ("torch/nn/modules/linear.py(130): forward", ("torch/nn/modules/linear.py: forward",
                                                      "torch/nn/modules/linear.py:130"), False),
        ("/usr/lib/python3/dist-packages/a.py(1): b", ("/usr/lib/python3/dist-packages/a.py: b",
                                                       "/usr/lib/python3/dist-packages/a.py:1"), False),
        ("typing.py(359): inner", ("typing.py: inner", "typing.py:359"), False),
        ("<built-in method relu of type object at 0x7f9a0a8cea40>", ("<built-in method relu of type object>", None),
         False),
        ("nn.Module: Linear_0", ("nn.Module: Linear_0", None), False),
    ],
)  # fmt: skip
def test_frame__python__name_without_line_and_address(name: str, expected: tuple, project: bool) -> None:
    assert tuple(frame(name, "python")) == expected
    assert frame(name, "python").is_project is project


def test_project_places__nearest_function_of_the_project() -> None:
    stacks = stacks_of(TWO_CALLS)
    nearest, places = project_places(stacks.events, stacks.around)
    found = {stacks.events.names[name]: at for name, at in zip(stacks.events.name.tolist(), nearest.tolist())}
    assert places[found["aten::addmm"]] == places[found["sgemm"]] == "model.py:5"
    assert (found["perfgate.call"], found["unknown"]) == (-1, -1)


@pytest.mark.recordings
def test_stacks__recorded_on_a_gpu__every_kernel_has_its_stack(tmp_path: Path) -> None:
    (timeline,) = trace.read(sample("cuda-kineto/v100_resnet50_num_workers_0.pt.trace.json.gz", tmp_path)).timelines
    stacks = stacks_of(timeline.events)
    tree = flame_tree(stacks, "x")

    assert (stacks.unit, stacks.units, attributed_share(stacks), stacks.unlaunched) == ("profiler step", 6, 1.0, 0)
    assert sum(tree.head.own) == int(stacks.own.sum())
    assert np.all(np.array(tree.parent) < np.arange(len(tree.parent)))


def test_stacks__annotation_opened_by_a_function__what_follows_lies_in_it_and_not_in_the_function() -> None:
    """As torch.profiler has it: record_function's __enter__ ends after its span began, __exit__ after it ended."""
    stacks = stacks_of(
        table(
            ("serve.py(1): loop", "python", 0, 1000, MAIN, -1),
            ("torch/autograd/profiler.py(918): __enter__", "python", 10, 30, MAIN, -1),
            ("span", "annotation", 30, 500, MAIN, -1),
            ("aten::mm", "host_op", 60, 100, MAIN, -1),
            ("torch/autograd/profiler.py(932): __exit__", "python", 520, 40, MAIN, -1),
        )
    )
    assert stacks.around.tolist() == [-1, 0, 0, 2, 0]
    assert stacks.cut == 0


@pytest.mark.recordings
def test_stacks__recorded_on_an_npu__every_kernel_leads_over_the_task_queue_to_the_function(tmp_path: Path) -> None:
    first, _ = trace.read(sample(f"{ALEXNET}/text/level1", tmp_path)).timelines
    stacks = stacks_of(first.events)

    assert (attributed_share(stacks), stacks.unlaunched, stacks.cut) == (1.0, 0, 0)
    found = [path for path in paths(flame_tree(stacks, "x")) if path.startswith("Stream 2 > ")]
    (pooling,) = (path for path in found if "MaxPool2d_2" in path and path.endswith("MaxPoolWithArgmaxV1"))
    assert " > nn.Module: AlexNet_0 > " in pooling
    assert " > aten::max_pool2d_with_indices > aclnnMaxPool2dWithMask > Enqueue" in pooling
    assert " > Dequeue@" in pooling


@pytest.mark.skipif(library.load() is None, reason="the scanner is not built (python hatch_build.py)")
@pytest.mark.parametrize("seed", range(8))
def test_stacks__compiled_or_not__the_same_calls_around(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    lot = random.Random(seed)
    builder = EventTableBuilder()
    for _ in range(400):
        builder.add(
            lot.randrange(200),
            lot.randrange(40),
            track=("p", str(lot.randrange(3))),
            name=f"n{lot.randrange(5)}",
            kind=lot.choice(("host_op", "annotation", "runtime", "python")),
            correlation=-1,
        )
    events = builder.table()
    compiled = stacks_of(events)
    monkeypatch.setattr(library, "load", lambda: None)
    plain = stacks_of(events)
    assert compiled.around.tolist() == plain.around.tolist()
    assert (compiled.cut, compiled.own.tolist()) == (plain.cut, plain.own.tolist())
    assert compiled.cut > 0


def launched_at_random(lot: random.Random) -> EventTable:
    """Nested calls of three threads, which may begin together, and work of two streams that some of them launched."""
    builder = EventTableBuilder()
    for number in range(80):
        track = ("p", str(lot.randrange(3)))
        name, kind = f"n{lot.randrange(4)}", lot.choice(("host_op", "annotation", "python"))
        builder.add(lot.randrange(40), lot.randrange(1, 40), track=track, name=name, kind=kind, correlation=-1)
        builder.add(lot.randrange(40), 1, track=track, name="launch", kind="runtime", correlation=number)
    for number in range(0, 120, 2):
        track = ("device", str(lot.randrange(2)))
        builder.add(number, 2, track=track, name=f"k{lot.randrange(3)}", kind="compute", correlation=lot.randrange(120))
    return builder.table()


@pytest.mark.parametrize("seed", range(6))
def test_merged_stacks__calls_at_random__a_node_is_a_stack_cut_at_the_deepest_level(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(flame, "MOST_LEVELS", 3)
    stacks = stacks_of(launched_at_random(random.Random(seed)))
    events, above = stacks.events, stacks.called_by
    tree = flame.merged_stacks(stacks, events.name)
    nodes: dict[tuple[object, ...], int] = {}
    for place in range(len(events)):
        calls = [place]
        while above[calls[-1]] >= 0:
            calls.append(int(above[calls[-1]]))
        # A stream has the calls above its work, a thread its own.
        root = stacks.track[place] if stacks.on_device[place] else stacks.track[calls[-1]]
        stack = [(events.names[events.name[call]], events.kind[call]) for call in reversed(calls)]
        assert tree.own_frame[place] == (len(stack) <= 3)
        node = int(tree.of_event[place])
        assert nodes.setdefault((root, *stack[:3]), node) == node
        for _ in stack[:3]:
            node = int(tree.parent[node])
        assert (tree.label[node], tree.parent[node]) == (root, -1)
    assert len(set(nodes.values())) == len(nodes)
    assert not tree.own_frame.all()
    assert all(parent < node for node, parent in enumerate(tree.parent.tolist()))


@pytest.mark.parametrize("seed", range(4))
def test_nearest_above__calls_at_random__the_first_wanted_call_upwards(seed: int) -> None:
    lot = random.Random(seed)
    stacks = stacks_of(launched_at_random(lot))
    everything = np.arange(len(stacks.events), dtype=np.int32)
    wanted = np.array([lot.random() < 0.1 for _ in everything])
    found = nearest_above(stacks, everything, wanted)
    for position in everything.tolist():
        above = int(stacks.called_by[position])
        while above >= 0 and not wanted[above]:
            above = int(stacks.called_by[above])
        assert found[position] == above
