"""What a workload says of itself: the same for the same code, another for other code."""

from __future__ import annotations

from typing import Any

from perfgate.measuring.workload.load import describe_functions, describe_shapes
from perfgate.measuring.workload.workload import Workload

CODE = """
def check(output, inputs, limit=0.1):
    '''Look at it.'''
    assert abs(output - inputs) < limit and output not in {"a", "b", "c"}
"""


def functions(code: str) -> dict[str, str]:
    names: dict[str, Any] = {}
    exec(code, names)
    return describe_functions(Workload(build=print, inputs=lambda batch, seed: seed, check=names["check"]))


def test_describe_functions__comment_docstring_and_place__no_difference() -> None:
    moved = "\n\n# elsewhere\n" + CODE.replace("'''Look at it.'''", "'''Look at the output.'''  # closely")
    assert functions(CODE) == functions(moved)
    assert sorted(functions(CODE)) == ["build", "check", "inputs"]


def test_describe_functions__other_limit_default_or_body__another_hash() -> None:
    changed = [
        CODE.replace("0.1", "0.2"),
        CODE.replace("<", "<="),
        CODE.replace('"c"', '"d"'),
        CODE.replace("abs", "float"),
    ]
    hashes = {functions(code)["check"] for code in [CODE, *changed]}
    assert len(hashes) == 5


def test_describe_shapes__arguments__as_text_in_one_order() -> None:
    shapes = {"long": {"width": 2, "length": 512}, "plain": {}}
    assert describe_shapes(Workload(build=print, inputs=print, shapes=shapes)) == {
        "long": "length=512, width=2",
        "plain": "",
    }


def test_describe_functions__stages_of_preprocessing__order_names_and_code_count() -> None:
    def resize(raw: Any) -> Any:
        return raw * 2

    def cast(raw: Any) -> Any:
        return raw + 1

    given = [
        {"resize": resize, "cast": cast},
        {"cast": cast, "resize": resize},
        {"resize": resize, "convert": cast},
        {"resize": resize, "cast": resize},
        resize,
    ]
    workloads = [Workload(build=print, inputs=print, preprocess=stages) for stages in given]
    assert len({describe_functions(workload)["preprocess"] for workload in workloads}) == 5


def test_describe_functions__code_that_owns_the_gradient_mode__is_told_from_one_that_does_not() -> None:
    made = [Workload(build=print, inputs=lambda batch, seed: seed, grad=grad) for grad in (False, True)]
    assert [describe_functions(one).get("grad") for one in made] == [None, "on"]
