from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch

from perfgate.document.message import Message
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.worker.correctness import MAX_SIGNATURE, check_outputs, signature
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.measuring.workload.workload import Workload


def checked(call, *, inputs=None, **fields):
    def random(batch, seed):
        return torch.randn(batch, 8, generator=torch.Generator().manual_seed(seed))

    workload = Workload(build=lambda device: {}, inputs=inputs or random, call=call, batch=4, **fields)
    device = open_device("cpu")
    (result,) = check_outputs(BoundWorkload("w", workload, device, seed=1))
    return result


def plain(_, x):
    return x.relu().sum(-1)


def by_identity(cache, x):
    if cache.get("seen") is not x:
        cache["seen"], cache["result"] = x, plain(None, x)
    return cache["result"]


def by_identity_and_version(cache, x):
    key = (id(x), x._version)
    if cache.get("key") != key:
        cache["seen"], cache["key"], cache["result"] = x, key, plain(None, x)
    return cache["result"]


def by_content(cache, x):
    if "seen" not in cache or not torch.equal(cache["seen"], x):
        cache["seen"], cache["result"] = x.clone(), plain(None, x)
    return cache["result"]


def half_by_identity(cache, x):
    if cache.get("seen") is not x:
        cache["seen"], cache["result"] = x, x[:, :4].relu().sum(-1)
    return cache["result"] + x[:, 4:].relu().sum(-1)


def random_output(_, x):
    return x + torch.rand_like(x)


def counting_calls(state, x):
    state["calls"] = state.get("calls", 0) + 1
    return x + state["calls"]


def test_check_outputs__kept_by_identity__failed_although_the_check_passes() -> None:
    result = checked(by_identity, check=lambda output, inputs: torch.equal(output, plain(None, inputs)))

    assert result.status == "failed"
    assert result.message == Message("output.stale")


def test_check_outputs__kept_by_identity_without_a_check__failed() -> None:
    assert checked(by_identity).status == "failed"


def test_check_outputs__half_of_the_output_kept_by_identity__failed() -> None:
    assert checked(half_by_identity).status == "failed"


def test_check_outputs__kept_by_identity_of_a_tensor_in_a_dictionary__failed() -> None:
    def inputs(batch, seed):
        return {"x": torch.full((batch, 8), float(seed)), "name": "a"}

    assert checked(lambda cache, x: by_identity(cache, x["x"]), inputs=inputs).status == "failed"


@pytest.mark.parametrize("call", [plain, by_identity_and_version, by_content, random_output, counting_calls])
def test_check_outputs__follows_its_input_or_cannot_be_told__not_checked(call: Callable[..., object]) -> None:
    result = checked(call)

    assert (result.status, result.message) == ("not_checked", None)


def test_check_outputs__one_constant_for_all_inputs__stays_as_it_was() -> None:
    constant = torch.ones(4, 8)

    assert checked(plain, inputs=lambda batch, seed: constant).status == "not_checked"
    assert torch.equal(constant, torch.ones(4, 8))


def test_check_outputs__inputs_that_cannot_be_filled__not_checked() -> None:
    assert checked(plain, inputs=lambda batch, seed: torch.ones(1, 8).expand(batch, 8)).status == "not_checked"
    assert checked(lambda _, x: torch.tensor(x), inputs=lambda batch, seed: [seed] * batch).signature == "int64[4]"


def sparse(batch: int, seed: int) -> torch.Tensor:
    return torch.eye(batch).mul(1.0 + seed).to_sparse()


def compressed(batch: int, seed: int) -> torch.Tensor:
    return sparse(batch, seed).to_sparse_csr()


def nested(batch: int, seed: int) -> torch.Tensor:
    members = [torch.full((1 + length, 3), 1.0 + seed) for length in range(batch)]
    return torch.nested.nested_tensor(members)


def jagged(batch: int, seed: int) -> torch.Tensor:
    members = [torch.full((1 + length, 3), 1.0 + seed) for length in range(batch)]
    return torch.nested.nested_tensor(members, layout=torch.jagged)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(
    ("inputs", "form"),
    [
        (sparse, "float32[4,4]"),
        (compressed, "float32[4,4]"),
        (nested, "float32[4 nested]"),
        (jagged, "float32[4,*,3]"),
        (lambda batch, seed: torch.full((batch, 2), 1j * (1 + seed)), "complex64[4,2]"),
    ],
)
def test_check_outputs__tensors_of_unusual_kinds__checked_with_a_signature(
    inputs: Callable[[int, int], torch.Tensor], form: str
) -> None:
    result = checked(lambda _, x: x * 2, inputs=inputs, check=lambda output, inputs: True)
    assert (result.status, result.message, result.signature) == ("passed", None, form)
    assert checked(lambda _, x: x * 2, inputs=inputs).signature == form


def test_check_outputs__sparse_output_kept_by_identity__failed() -> None:
    def kept(cache, x):
        if cache.get("seen") is not x:
            cache["seen"], cache["result"] = x, x * 2
        return cache["result"]

    assert checked(kept, inputs=sparse).message == Message("output.stale")


def test_check_outputs__a_training_step_changes_the_model__not_judged() -> None:
    result = checked(None, train_step=by_identity)

    assert (result.status, result.signature) == ("not_checked", "float32[4]")


def test_check_outputs__check_says_no__its_words_and_the_signature() -> None:
    result = checked(plain, check=lambda output, inputs: False)

    assert (result.status, result.message, result.signature) == ("failed", "check returned False", "float32[4]")


def test_check_outputs__call_raises__error() -> None:
    def broken(_, x):
        raise ValueError("no such layer")

    result = checked(broken, check=lambda output, inputs: True)

    assert (result.status, result.message, result.signature) == ("error", "ValueError: no such layer", None)
    # Without a check nothing was asked of the output, and the steps report the failing call.
    assert checked(broken).status == "not_checked"


@dataclass
class Output:
    logits: torch.Tensor
    loss: None


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (torch.zeros(8, 48), "float32[8,48]"),
        ((torch.zeros(8, 48),), "(float32[8,48],)"),
        ((torch.zeros(2), torch.zeros((), dtype=torch.int64)), "(float32[2], int64[])"),
        ({"mask": torch.zeros(8, dtype=torch.bool), "n": 3}, "{mask: bool[8], n: int}"),
        ([torch.zeros(1).bfloat16(), None], "[bfloat16[1], None]"),
        (Output(torch.zeros(2, 3), None), "{logits: float32[2,3], loss: None}"),
        (torch.zeros(3).numpy(), "float32[3]"),
        ("text", "str"),
        ((), "()"),
    ],
)
def test_signature__structure_shapes_and_dtypes(output: object, expected: str) -> None:
    assert signature(output) == expected


def test_signature__very_long__differs_where_only_its_end_does() -> None:
    first = [torch.zeros(1)] * 200
    second = [*first[:-1], torch.zeros(2)]

    assert signature(first) != signature(second)
    assert len(signature(first)) == MAX_SIGNATURE + 14
