"""Step 13's unconfigured shapes: edge cases of the workload's own sizes, each compared
with the configured shapes.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from perfgate.measuring.checklist.experiment import FailedExperiment, experiment
from perfgate.measuring.checklist.step import StepContext, StepOutcome
from perfgate.measuring.counting.compiled import has_compiled
from perfgate.measuring.devices.batches import tensors
from perfgate.measuring.timing.calls import compiled_graphs, timed_call

_COST, _RECOMPILES = "shapes.cost", "shapes.recompiles"
_CALLS = 5

Arguments = Mapping[str, Any]


def propose(shapes: Mapping[str, Arguments]) -> Iterator[tuple[str, str, Arguments]]:
    """For every integer argument: one, the neighbours beyond both ends, a power of two
    plus one, and twice the largest.

    Integers in lists and tuples, such as image sizes or the lengths of a batch, change
    one at a time; all other arguments stay as in the first shape. The smallest possible
    shape, with every size one, comes last. Each has a name, which is the argument that
    differs from the first shape with its value, and a kind.
    """
    typical = next(iter(shapes.values()))
    smallest = {}
    for argument in typical:
        values: list[Any] = [shape.get(argument) for shape in shapes.values()]
        if all(map(_is_sequence, values)):
            sequence = type(typical[argument])
            sizes = list(typical[argument])
            for place, columns in enumerate(zip_longest(*values)):
                if place == len(sizes):
                    break
                for size, kind in _beyond(columns):
                    changed = [*sizes[:place], size, *sizes[place + 1 :]]
                    yield (
                        f"{argument}[{place}]={size}",
                        kind,
                        {**typical, argument: sequence(changed)},
                    )
            smallest[argument] = sequence(map(_smallest, sizes))
        else:
            for size, kind in _beyond(values):
                yield (f"{argument}={size}", kind, {**typical, argument: size})
            smallest[argument] = _smallest(typical[argument])
    changes = list(map(operator.ne, _sizes(typical), _sizes(smallest)))
    # A change of a single size was among the proposals above.
    if sum(changes) > 1 and smallest not in shapes.values():
        yield ("1 everywhere", "extreme", smallest)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _smallest(value: Any) -> Any:
    return 1 if _is_size(value) else value


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _sizes(arguments: Arguments) -> list[Any]:
    """All values, with lists and tuples flattened."""
    sizes: list[Any] = []
    for value in arguments.values():
        sizes += value if _is_sequence(value) else [value]
    return sizes


def _beyond(sizes: Sequence[Any]) -> Iterator[tuple[int, str]]:
    """Sizes at the edges of these and beyond, each with its kind; none unless all are
    positive integers.
    """
    if not all(map(_is_size, sizes)):
        return
    low, high = min(sizes), max(sizes)
    proposed = {
        1: "extreme",
        low - 1: "boundary",
        high + 1: "boundary",
        (1 << high.bit_length()) + 1: "boundary",
    }
    for size, kind in {**proposed, 2 * high: "extreme"}.items():
        if size > 0 and size not in sizes:
            yield size, kind


class _Sized(NamedTuple):
    """The elements of the inputs of a shape, and the seconds of a call."""

    elements: int
    seconds: float

    def over(self, configured: list[_Sized]) -> float:
        """The time relative to the configured shape nearest in size, scaled by the
        square of the elements.

        Attention grows quadratically and most other operators more slowly. Fewer
        elements should not take longer, but need not take less: a call has fixed costs.
        """
        near = min(configured, key=lambda shape: abs(shape.elements - self.elements))
        growth = max(1.0, self.elements / near.elements) ** 2
        return self.seconds / (near.seconds * growth)


def measure_shape_space(context: StepContext, outcome: StepOutcome) -> None:
    """The cost of proposed shapes, the worst first, and how often each made a compiled
    workload compile again.
    """
    shapes = context.workload.workload.shapes
    configured = [_time_calls(context, arguments) for arguments in shapes.values()]
    costs: list[tuple[float, StepOutcome]] = []
    for name, kind, arguments in propose(shapes):
        of_shape = outcome.under(proposed=name, kind=kind)
        context.doing("trying the {kind} shape {name}", kind=kind, name=name)
        compiled = compiled_graphs()
        timed = experiment(
            context,
            partial(_time_calls, context, arguments),
            failing="operators.shape-refused",
        )
        if isinstance(timed, FailedExperiment):
            of_shape.missing(_COST, timed.reason)
            continue
        costs.append((timed.over(configured), of_shape))
        if has_compiled():
            of_shape.number(_RECOMPILES, float(compiled_graphs() - compiled))
    for cost, of_shape in sorted(costs, key=lambda entry: -entry[0]):
        of_shape.number(_COST, cost, count=_CALLS)
        of_shape.above(_COST, cost, of_shape.labels)


def _time_calls(context: StepContext, arguments: Arguments) -> _Sized:
    bound, device = context.workload, context.device
    inputs = device.to_device(
        bound.preprocess(bound.workload.inputs(bound.batch, context.seed, **arguments))
    )
    # The first calls compile and allocate.
    times = [
        timed_call(lambda: bound.invoke(inputs), device) for _ in range(2 + _CALLS)
    ]
    elements = sum(tensor.numel() for tensor in tensors(inputs)) or 1
    return _Sized(elements, max(float(np.median(times[2:])), 1.0) / 1e9)
