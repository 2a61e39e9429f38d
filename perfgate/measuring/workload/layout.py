"""The memory layout of a workload: its weights, its inputs, Python's own pools and the heap, moved at random.

Code that only differs can be up to 1 % slower in one layout and as much faster in another. A layout that changes before every
quad, on both sides alike, makes that a part of the spread instead of a bias (benchmarks/gate/FINDINGS.md, section 5).
"""

from __future__ import annotations

import ctypes
import random
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING

from perfgate.measuring.workload.bound import BoundWorkload

if TYPE_CHECKING:
    import torch

# Moving copies: a model of more bytes would spend longer on it than on its calls.
MOST_BYTES = 256 * 2**20
_MOST_DEPTH = 4
_REGISTERED = {"_parameters", "_buffers", "_modules"}
# Sizes that Python's allocator keeps pools for (Objects/obmalloc.c, SMALL_REQUEST_THRESHOLD), and the bytes of a page.
_SMALL = range(16, 513, 16)
_PAGE = 4096
_MOST_PAGES = 8
# What holds no tensor, and is most of what a model holds.
_PLAIN = (str, bytes, int, float, complex, type(None))

# Of glibc: free memory goes back to the kernel, so that a call's temporaries lie in other pages each time. Sharing the lines
# of a cache made calls of 8 MB tensors 30 % slower for as long as a process lived.
_give_back_memory = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: 0)


class Layout:
    """The layout of one workload. ``movable`` is whether all of its tensors can be moved: in the host's memory, not too large.

    Tensors of a model are its parameters, buffers and attributes; inputs are searched as tuples, lists and dictionaries.
    A tensor that only a closure holds is not found, so a model that is not a module and shows no tensor is not
    movable.
    """

    def __init__(self, workload: BoundWorkload) -> None:
        self._workload = workload
        self._held: list[object] = []
        torch = sys.modules.get("torch")
        is_module = torch is not None and isinstance(workload.model, torch.nn.Module)
        has_tensors = is_module or any(True for _ in _tensors(workload.model))
        self.movable = has_tensors and _movable(self._all())

    def move(self, seed: int) -> None:
        """Move everything to places chosen by this seed: the same seed does the same on both sides."""
        lot = random.Random(seed)
        # The old pads go first, so that new pads can reuse their memory.
        self._held.clear()
        _give_back_memory(0)
        self._held += [bytearray(16 * lot.randrange(65536) + 16), *fill_pools(lot)]
        self._held += [
            bytearray(lot.randrange(_SMALL.stop, _PAGE))
            for _ in range(lot.randrange(200))
        ]
        if self.movable:
            try:
                _move(self._all())
            except RuntimeError:  # torch lets no storage be put under a tensor, of a view with a history for instance
                self.movable = False

    def _all(self) -> list[torch.Tensor]:
        tensors = [*_tensors(self._workload.model), *_tensors(self._workload.pools())]
        return list({id(tensor): tensor for tensor in tensors}.values())


def _tensors(value: object, depth: int = 0) -> Iterator[torch.Tensor]:
    """Yield the tensors of a model or of inputs, some more than once."""
    torch = sys.modules.get("torch")
    if torch is None:
        return
    parts: Iterable[object] = ()
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, torch.nn.Module):
        yield from value.parameters()
        yield from value.buffers()
        for module in value.modules():
            yield from _kept_beside(module)
    elif isinstance(value, Mapping):
        parts = value.values()
    elif isinstance(value, (list, tuple)):
        parts = value
    elif hasattr(value, "__dict__") and not isinstance(value, (type, ModuleType)):
        parts = vars(value).values()
    for part in parts:
        if depth < _MOST_DEPTH and not isinstance(part, _PLAIN):
            yield from _tensors(part, depth + 1)


def _kept_beside(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    """Yield a module's tensors besides parameters and buffers, such as a cache, as far as torch lets them move."""
    import torch

    for name, value in vars(module).items():
        if name in _REGISTERED:
            continue
        parts = value
        if not isinstance(value, (list, tuple)):
            parts = [value]
        for part in parts:
            if (
                isinstance(part, torch.Tensor)
                and part.grad_fn is None
                and _movable([part])
            ):
                yield part


def _movable(tensors: list[torch.Tensor]) -> bool:
    import torch

    sizes: dict[int, int] = {}
    for tensor in tensors:
        if (
            tensor.device.type != "cpu"
            or tensor.layout != torch.strided
            or tensor.is_inference()
        ):
            return False
        try:
            sizes[_address(tensor)] = tensor.untyped_storage().nbytes()
        except RuntimeError:  # a tensor around others has no memory of its own
            return False
    return sum(sizes.values()) <= MOST_BYTES


def _move(tensors: list[torch.Tensor]) -> None:
    """Give every tensor a new storage with the same contents; tensors that share one go on sharing."""
    import torch

    moved: dict[int, torch.UntypedStorage] = {}
    for tensor in tensors:
        address = _address(tensor)
        if address not in moved:
            moved[address] = tensor.untyped_storage().clone()  # type: ignore[no-untyped-call]
        there = torch.empty(0, dtype=tensor.dtype)
        there.set_(
            moved[address], tensor.storage_offset(), tensor.size(), tensor.stride()
        )
        # Of these the memory holds other numbers than the tensor.
        if tensor.is_conj():
            there = torch._conj(there)
        if tensor.is_neg():
            there = torch._neg_view(there)
        tensor.data = there


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def fill_pools(lot: random.Random) -> list[object]:
    """A number of objects by lot of every size of Python's allocator, up to eight pages each.

    An object of 16 bytes, a float of 24, and byte strings with a header of 33: none of them is a container to collect.
    """
    objects: list[object] = []
    for size in _SMALL:
        for _ in range(lot.randrange(_MOST_PAGES * _PAGE // size)):
            if size > 33:
                objects.append(bytes(size - 33))
            elif size > 16:
                objects.append(float(len(objects)))
            else:
                objects.append(object())
    return objects


# The module of what lies between the holes.
MODULE = "_perfgate_layout"
_DEAD_FUNCTIONS = (5, 120)
_MOST_LINES = 12
# Holes are left in this multiple of the memory of a move.
_FILLS = 4
# The heap beyond Python's pools has the code objects of more than a few lines: blocks, and the bytes of each.
_BLOCKS, _BLOCK_BYTES = 600, range(_SMALL.stop, 4 * _PAGE)


def scatter_memory(seed: int) -> None:
    """Define functions without a caller, and leave holes at random places of the heap for what is loaded next.

    A refactoring moves functions, classes and dictionaries of a module against each other. Where their order in memory is
    drawn by lot at every start, on both sides, such luck varies from start to start as noise does, and the statistics see it
    (Curtsinger and Berger, STABILIZER: statistically sound performance evaluation, ASPLOS 2013).
    """
    lot = random.Random(seed)
    module = ModuleType(MODULE)
    exec(compile(_dead_functions(lot), MODULE, "exec"), module.__dict__)  # noqa: S102 - the source is ours
    objects: list[object] = []
    for _ in range(_FILLS):
        objects += fill_pools(lot)
    for _ in range(_BLOCKS):
        objects.append(bytearray(lot.choice(_BLOCK_BYTES)))
    # Those in the second half of a random order are freed, one after the other: the holes.
    lot.shuffle(objects)
    vars(module)["objects"] = objects[: len(objects) // 2]
    sys.modules[MODULE] = module


def _dead_functions(lot: random.Random) -> str:
    """The source of functions of different lengths."""
    source = ""
    for number in range(lot.randrange(*_DEAD_FUNCTIONS)):
        source += f"def unused_{number}(argument=None):\n"
        for line in range(lot.randrange(1, _MOST_LINES)):
            source += f"    name_{line} = [{lot.random():.6f}, 'text {lot.random()}']\n"
        source += f"    return {lot.random():.6f}\n"
    return source
