"""The causes: what is planted where, and what the comment has to name first."""

from __future__ import annotations

from dataclasses import dataclass

INDENT = " " * 8


@dataclass(frozen=True)
class Plant:
    """One cause: the line marked ``# plant: MARK`` of a file becomes ``lines``, in which one ends in ``# here``.

    ``names`` are words of which the first cause in the comment must hold at least one.
    """

    name: str
    mark: str
    lines: tuple[str, ...]
    names: tuple[str, ...]
    workload: str = "encoder"
    file: str = "model.py"


PLANTS = (
    Plant(
        "permute and contiguous",
        "tail",
        (f"{INDENT}rows = (rows + 1).t().contiguous().t().contiguous()  # here",),
        ("aten::clone", "aten::contiguous", "aten::copy_"),
    ),
    Plant(
        "loop of small operators",
        "tail",
        (f"{INDENT}rows = torch.stack([row + 1 for row in rows])  # here",),
        ("aten::add",),
    ),
    Plant(
        "added cast",
        "tail",
        (f"{INDENT}rows = (rows + 1).double().float()  # here",),
        ("aten::_to_copy", "aten::to", "aten::copy_"),
    ),
    Plant(
        "activation written out",
        "activation",
        (f"{INDENT}hidden = hidden * 0.5 * (1 + torch.erf(hidden * 0.7071067811865476))  # here",),
        ("aten::mul", "aten::erf", "aten::add"),
    ),
    Plant(
        "synchronisation by item()",
        "tail",
        (f"{INDENT}rows = rows + 1 if rows.sum().item() != 1e30 else -rows  # here",),
        ("aten::_local_scalar_dense", "item", "aten::sum"),
    ),
    Plant(
        "dropped autocast",
        "autocast",
        (f"{INDENT}with torch.no_grad():  # here",),
        ("low-precision", "aten::addmm", "aten::linear"),
        workload="mixed",
    ),
    Plant(
        "graph break",
        "tail",
        (f"{INDENT}rows = rows + 1", f"{INDENT}torch._dynamo.graph_break()  # here"),
        ("graph_break", "graph break"),
        workload="compiled",
    ),
    Plant(
        "larger hidden size",
        "hidden size",
        ("FEATURES = 4 * WIDTH  # here",),
        ("aten::addmm", "aten::linear"),
    ),
    Plant(
        "slower preprocessing",
        "preprocess",
        (
            "    scaled = (scaled - scaled.mean(1, keepdim=True)) / scaled.std(1, keepdim=True)",
            "    return torch.stack([row.sort().values.clamp(-9, 9)[row.argsort().argsort()] for row in scaled])  # here",
        ),
        ("preprocess",),
        workload="prepared",
        file="perf.py",
    ),
    Plant(
        "leak",
        "tail",
        (f"{INDENT}rows = rows + 1", f"{INDENT}self.seen.append(rows + 0)  # here"),
        ("aten::add",),
    ),
    Plant(
        "smaller batch",
        "batch",
        ("BATCH = 16  # here",),
        ("batch",),
        file="perf.py",
    ),
    Plant(
        "lost channels_last",
        "layout",
        (f"{INDENT}images = images.contiguous()  # here",),
        ("aten::convolution", "aten::mkldnn_convolution", "aten::_convolution", "aten::clone", "aten::conv2d"),
        workload="convolutions",
    ),
    Plant(
        "duplicated collective",
        "collective",
        (
            f"{INDENT}torch.distributed.all_reduce(rows)",
            f"{INDENT}torch.distributed.all_reduce(rows)  # here",
        ),
        ("allreduce", "all_reduce"),
        workload="shared",
    ),
    Plant(
        "slower single kernel",
        "kernel",
        (f"{INDENT}rows = functional.avg_pool1d(rows, 191, stride=1, padding=95)  # here",),
        ("aten::avg_pool1d", "aten::avg_pool2d", "aten::_adaptive_avg_pool2d"),
    ),
)
