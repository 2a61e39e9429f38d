"""The causes: what is planted where, and what the comment has to name first."""

from __future__ import annotations

from dataclasses import dataclass

INDENT = " " * 8


@dataclass(frozen=True)
class Plant:
    """One cause: the line marked ``# plant: MARK`` of a file becomes ``lines``, in which one ends in ``# here``.

    ``names`` are words of which the first cause in the comment must hold at least one. The line it names is the one planted,
    or where that runs nothing itself, a line of the file that begins as one of ``felt_at`` does. Where no counter moves and the
    times must be shown unchanged, the gate is ``whole``: it has all its pairs.
    """

    name: str
    mark: str
    lines: tuple[str, ...]
    names: tuple[str, ...]
    workload: str = "encoder"
    file: str = "model.py"
    felt_at: tuple[str, ...] = ()
    whole: bool = False


PLANTS = (
    Plant(
        "permute and contiguous",
        "tail",
        (f"{INDENT}rows = (rows + 1).t().contiguous().t().contiguous()  # here",),
        ("2 more `aten::clone`",),
    ),
    Plant(
        "loop of small operators",
        "tail",
        (f"{INDENT}rows = torch.stack([row + 1 for row in rows])  # here",),
        ("63 more `aten::add`",),
    ),
    Plant(
        "added cast",
        "tail",
        (f"{INDENT}rows = (rows + 1).double().float()  # here",),
        ("2 more `aten::_to_copy`",),
    ),
    Plant(
        "activation written out",
        "activation",
        (f"{INDENT}hidden = hidden * 0.5 * (1 + torch.erf(hidden * 0.7071067811865476))  # here",),
        ("3 more `aten::erf`", "9 more `aten::mul`"),
    ),
    Plant(
        "synchronisation by item()",
        "tail",
        (f"{INDENT}rows = rows + 1 if rows[0, 0].item() != 1e30 else -rows  # here",),
        ("1 more `aten::_local_scalar_dense`", "1 more `aten::item`"),
    ),
    Plant(
        "dropped autocast",
        "autocast",
        (f"{INDENT}with torch.no_grad():  # here",),
        (
            "`aten::addmm` on `float32[32]` instead of `bfloat16[32]`",
            "`aten::index_select` on `float32[64,8192]` instead of `bfloat16[64,8192]`",
            "`aten::addmm` in full precision",
            "`aten::index_select` in full precision",
        ),
        workload="mixed",
    ),
    Plant(
        "graph break",
        "tail",
        (f"{INDENT}rows = rows + 1", f"{INDENT}torch._dynamo.graph_break()  # here"),
        ("1 more graph break",),
        workload="compiled",
    ),
    Plant(
        "larger hidden size",
        "hidden size",
        ("FEATURES = 4 * WIDTH  # here",),
        (
            "`aten::addmm` on `float32[192,768]` instead of `float32[192,384]`",
            "`aten::addmm` on `float32[768,192]` instead of `float32[384,192]`",
        ),
        felt_at=(f"{INDENT}hidden = self.up(rows)", f"{INDENT}return self.norm(rows + self.down(hidden))"),
    ),
    Plant(
        "slower preprocessing",
        "preprocess",
        ("    return torch.stack([(row - row.mean()) / row.std() for row in scaled])  # here",),
        ("normalized",),
        workload="prepared",
        file="prepare.py",
    ),
    Plant(
        "leak",
        "tail",
        (f"{INDENT}rows = rows + 1", f"{INDENT}self.seen.append(rows + 0)  # here"),
        ("1 more `aten::add` at `model.py:44`, and its result is kept",),
    ),
    Plant(
        "smaller batch",
        "batch",
        ("BATCH = 16  # here",),
        ("the batch changed from 64 to 16",),
        file="perf.py",
        whole=True,
    ),
    Plant(
        "lost channels_last",
        "layout",
        (f"{INDENT}images = self.features(images)  # here",),
        ("instead of `float32[4,32,24,24] channels_last`", "instead of `float32[4,16,24,24] channels_last`"),
        workload="convolutions",
    ),
    Plant(
        "duplicated collective",
        "collective",
        (
            f"{INDENT}torch.distributed.all_reduce(rows)",
            f"{INDENT}torch.distributed.all_reduce(rows)  # here",
        ),
        ("1 more `c10d::allreduce_`",),
        workload="shared",
    ),
    Plant(
        "deep copy of a configuration",
        "tail",
        (
            f"{INDENT}import copy",
            f"{INDENT}rows = rows + copy.deepcopy({{'layers': [{{'add': 1}}] * 3}})['layers'][0]['add']  # here",
        ),
        ("calls to `deepcopy`", "bytecodes in `deepcopy`"),
    ),
    Plant(
        "log record in every block",
        "activation",
        (
            f"{INDENT}import logging",
            f"{INDENT}hidden = functional.gelu(hidden)",
            f"{INDENT}logging.getLogger('model').warning('hidden %s', tuple(hidden.shape))  # here",
        ),
        ("calls to `", "bytecodes in `"),
    ),
    Plant(
        "slower single kernel",
        "kernel",
        (f"{INDENT}rows = functional.avg_pool1d(rows, 191, stride=1, padding=95)  # here",),
        ("`aten::avg_pool2d` takes",),
    ),
)
