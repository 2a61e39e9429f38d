"""Expressions of torch, each evaluated on the CPU and on the NPU: `python operators.py` prints one line for each.

An operator added to the library gets an expression here whose value depends on every one of its arguments: a wrong order of
arguments must show.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as f

A = torch.linspace(-2, 2, 24).reshape(4, 6)
B = torch.linspace(0.5, 3, 24).reshape(4, 6).flip(0)
IMAGE = torch.linspace(-1, 1, 2 * 4 * 6 * 6).reshape(2, 4, 6, 6).sin()
INDEX = torch.tensor([2, 0, 3])
WHOLE = torch.arange(24).reshape(4, 6) - 7
SQUARE = torch.linspace(-1, 1, 16).reshape(4, 4).cos()
QUERY = torch.linspace(-1, 1, 2 * 4 * 5 * 8).reshape(2, 4, 5, 8).sin()
KEY = torch.linspace(-2, 1, 2 * 2 * 5 * 8).reshape(2, 2, 5, 8).cos()

Expression = Callable[..., Tensor]


def put_back(kept: Tensor, scaled: Tensor) -> Tensor:
    """Fill the places that dropout has emptied."""
    return torch.where(kept != 0, kept, scaled)


# Not here: gelu(approximate="tanh"), which torch_npu 2.13 drops on a 910B (one aclnnGelu for both forms).
# name: (expression, tensors)
EXPRESSIONS: dict[str, tuple[Expression, tuple[Tensor, ...]]] = {
    # element by element
    **{
        name: (getattr(torch, name), (A,))
        for name in (
            "abs",
            "exp",
            "expm1",
            "sin",
            "cos",
            "tan",
            "sinh",
            "cosh",
            "tanh",
            "atan",
            "asinh",
            "erf",
            "erfc",
            "sigmoid",
            "ceil",
            "floor",
            "round",
            "trunc",
            "frac",
            "sign",
            "neg",
        )
    },
    **{
        name: (getattr(torch, name), (B,))
        for name in ("log", "log1p", "log2", "log10", "sqrt", "rsqrt", "reciprocal", "exp2")
    },
    **{
        name: (getattr(f, name), (A,))
        for name in (
            "relu",
            "relu6",
            "elu",
            "selu",
            "silu",
            "mish",
            "gelu",
            "leaky_relu",
            "hardtanh",
            "hardswish",
            "hardsigmoid",
            "softplus",
            "logsigmoid",
        )
    },
    "glu": (lambda a: f.glu(a, dim=0), (A,)),
    "prelu": (f.prelu, (IMAGE, torch.tensor([0.1, 0.2, 0.3, 0.4]))),
    "add": (lambda a, b: torch.add(a, b, alpha=3), (A, B)),
    "sub": (lambda a, b: torch.sub(a, b, alpha=3), (A, B)),
    "rsub": (lambda a: 1 - a, (A,)),
    "div": (lambda a, b: a / b, (A, B)),
    "div_trunc": (lambda a, b: torch.div(a, b, rounding_mode="trunc"), (A, B)),
    "div_floor": (lambda a, b: torch.div(a, b, rounding_mode="floor"), (A, B)),
    "floor_divide": (lambda w: w // 3, (WHOLE,)),
    "remainder": (lambda a, b: a % b, (A, B)),
    "remainder_scalar": (lambda a: a % 0.7, (A,)),
    "fmod": (torch.fmod, (A, B)),
    "pow": (lambda a, b: torch.pow(b, a), (A, B)),
    "pow_scalar": (lambda a: a**3, (A,)),
    "scalar_pow": (lambda a: 2**a, (A,)),
    "clamp": (lambda a: a.clamp(-0.5, 1), (A,)),
    "clamp_max": (lambda a: a.clamp(max=1), (A,)),
    "clamp_tensors": (lambda a, b: a.clamp(-b, b), (A, B)),
    "maximum": (torch.maximum, (A, B)),
    "minimum": (torch.minimum, (A, B)),
    "atan2": (torch.atan2, (A, B)),
    "lerp": (lambda a, b: torch.lerp(a, b, 0.3), (A, B)),
    "addcmul": (lambda a, b: torch.addcmul(a, b, b, value=0.3), (A, B)),
    "addcdiv": (lambda a, b: torch.addcdiv(a, a, b, value=0.3), (A, B)),
    "where": (lambda a, b: torch.where(a > b, a, b), (A, B)),
    "masked_fill": (lambda a: a.masked_fill(a > 0, -7), (A,)),
    "compare": (lambda a, b: torch.stack([a > b, a >= b, a < b, a <= b, a == b, a != b]), (A, B)),
    "logic": (lambda w: torch.stack([(w > 0) & (w < 9), (w > 0) | (w < -3), (w > 0) ^ (w < 9), ~(w > 0)]), (WHOLE,)),
    "bits": (lambda w: torch.stack([w & 6, w | 9, w ^ 5, ~w]), (WHOLE,)),
    "finite": (lambda a: torch.stack([torch.isfinite(a), torch.isinf(a), torch.isnan(a)]), (A / A.round(),)),
    "nan_to_num": (lambda a: torch.nan_to_num(a, 1.0, 2.0, 3.0), (A / A.round(),)),
    # made from nothing
    "arange": (lambda a: torch.arange(1, 9, 2, device=a.device), (A,)),
    "linspace": (lambda a: torch.linspace(0, 1, 5, device=a.device), (A,)),
    "eye": (lambda a: torch.eye(3, 4, device=a.device), (A,)),
    "full": (lambda a: torch.full((2, 3), 4.5, device=a.device), (A,)),
    "tril": (lambda a: a.tril(1), (A,)),
    "triu": (lambda a: a.triu(-1), (A,)),
    # products
    "matmul": (lambda a, b: a @ b.T, (A, B)),
    "bmm": (lambda a: torch.bmm(a.flatten(1, 2), a[:, 0]), (IMAGE,)),
    "addmm": (lambda s, a, b: torch.addmm(s, a, b.T, beta=0.5, alpha=2), (SQUARE, A, B)),
    "mv": (lambda a, b: torch.mv(a, b[0]), (A, B)),
    "dot": (lambda a, b: torch.dot(a[0], b[0]), (A, B)),
    "einsum": (lambda a, b: torch.einsum("ij,kj->ik", a, b), (A, B)),
    "conv": (lambda x: f.conv2d(x, x[:, :2, :3, :3].contiguous(), stride=2, padding=1, groups=2), (IMAGE,)),
    "conv_dilated": (lambda x: f.conv2d(x, x[:, :, :3, :3].contiguous(), dilation=2), (IMAGE,)),
    "conv1d": (lambda x: f.conv1d(x[:, :, 0], x[:, :, 0, :3].contiguous()), (IMAGE,)),
    "conv_transpose": (
        lambda x: f.conv_transpose2d(x, x.new_ones(4, 3, 2, 2) / 3, stride=2, output_padding=1),
        (IMAGE,),
    ),
    # reductions
    "sum": (lambda a: a.sum(0), (A,)),
    "mean": (lambda a: a.mean((0, 1), keepdim=True), (A,)),
    "prod": (lambda a: a.prod(1), (B,)),
    "amax": (lambda a: a.amax(1) + a.amin(1), (A.sin(),)),
    "max_dim": (lambda a: a.max(1).values + a.min(1).values, (A.sin(),)),
    "argmax": (lambda a: a.argmax(1) + a.argmin(1), (A.sin(),)),
    "var": (lambda a: a.var(0) + a.std(0), (A,)),
    "norm": (lambda a: a.norm(dim=1) + torch.linalg.vector_norm(a, 1, dim=1), (A,)),
    "logsumexp": (lambda a: a.logsumexp(1), (A,)),
    "cumsum": (lambda a: a.cumsum(1), (A,)),
    "any_all": (lambda a: torch.stack([(a > 1).any(1), (a > -3).all(1), (a > 0).all(1)]), (A,)),
    "sort": (lambda a: torch.cat([a.sort(1, descending=True).values, a.argsort(0).float()]), (A.sin(),)),
    "topk": (lambda a: torch.cat([a.topk(2, 1).values, a.topk(2, 1).indices.float()]), (A.sin(),)),
    "softmax": (lambda a: a.softmax(1) + a.log_softmax(0), (A,)),
    # norms, pooling, resizing
    "layer_norm": (lambda a, b: f.layer_norm(a, (6,), b[0], b[1], 1e-3), (A, B)),
    "batch_norm": (lambda x: f.batch_norm(x, None, None, training=True, eps=1e-3), (IMAGE,)),
    "group_norm": (lambda x: f.group_norm(x, 2, x[0, :, 0, 0], x[0, :, 1, 1], eps=1e-3), (IMAGE,)),
    "avg_pool": (lambda x: f.avg_pool2d(x, 3, 2, 1, count_include_pad=False), (IMAGE,)),
    "max_pool": (lambda x: f.max_pool2d(x, 3, 2, 1), (IMAGE,)),
    "adaptive_pool": (lambda x: f.adaptive_avg_pool2d(x, (2, 3)), (IMAGE,)),
    "nearest": (lambda x: f.interpolate(x, scale_factor=2), (IMAGE,)),
    "bilinear": (lambda x: f.interpolate(x, size=(9, 7), mode="bilinear"), (IMAGE,)),
    "bilinear_corners": (lambda x: f.interpolate(x, size=(9, 7), mode="bilinear", align_corners=True), (IMAGE,)),
    "pad": (lambda x: f.pad(x, (1, 2, 0, 1), value=7), (IMAGE,)),
    # losses
    "cross_entropy": (
        lambda a, i: f.cross_entropy(a, i, weight=a[0].detach().exp(), ignore_index=1),
        (A, torch.tensor([2, 0, 1, 3])),
    ),
    "mse": (f.mse_loss, (A, B)),
    "l1": (f.l1_loss, (A, B)),
    "smooth_l1": (lambda a, b: f.smooth_l1_loss(a, b, beta=0.7), (A, B)),
    "kl_div": (lambda a, b: f.kl_div(a, b, reduction="batchmean"), (A, B.softmax(1))),
    "bce": (lambda a, b: f.binary_cross_entropy(a.sigmoid(), b / 4), (A, B)),
    "bce_logits": (
        lambda a, b: f.binary_cross_entropy_with_logits(a, b / 4, weight=b.detach(), pos_weight=b[0].detach()),
        (A, B),
    ),
    # indexing
    "embedding": (lambda a, i: f.embedding(i, a), (A, INDEX)),
    "index_select": (lambda a, i: a.index_select(0, i), (A, INDEX)),
    "index": (lambda a, i: a[i, :2], (A, INDEX)),
    "index_mask": (lambda a: a[a > 0], (A,)),
    "index_put": (lambda a, i: torch.zeros_like(a).index_put((i,), a[:3]), (A, INDEX)),
    "index_add": (lambda a, i: a.index_add(0, i, a[:3], alpha=2), (A, INDEX)),
    "gather": (lambda a, i: a.gather(1, i.expand(4, 3)), (A, INDEX)),
    "scatter": (lambda a, i: a.scatter(1, i.expand(4, 3), a[:, :3] * 9), (A, INDEX)),
    "scatter_value": (lambda a, i: a.scatter(1, i.expand(4, 3), 5.0), (A, INDEX)),
    "scatter_add": (lambda a, i: a.scatter_add(1, i.expand(4, 3), a[:, :3] * 9), (A, INDEX)),
    "nonzero": (lambda a: (a > 0).nonzero(), (A,)),
    "one_hot": (lambda i: f.one_hot(i, 5), (INDEX,)),
    "repeat": (lambda a: a.repeat(2, 3), (A,)),
    "repeat_interleave": (lambda a: a.repeat_interleave(3, dim=1), (A,)),
    "flip_roll": (lambda a: a.flip(1) + a.roll((1, 2), (0, 1)), (A,)),
    "cat_stack": (lambda a, b: torch.cat([torch.stack([a, b]), torch.stack([b, a])], dim=2), (A, B)),
    # attention
    "attention": (lambda q: f.scaled_dot_product_attention(q, q.flip(1), q.flip(2)), (QUERY,)),
    "attention_causal": (lambda q: f.scaled_dot_product_attention(q, q.flip(1), q.flip(2), is_causal=True), (QUERY,)),
    "attention_mask": (lambda q: f.scaled_dot_product_attention(q, q, q, attn_mask=q[0, 0, :, :5] > -0.9), (QUERY,)),
    "attention_groups": (lambda q, k: f.scaled_dot_product_attention(q, k, k + 1, enable_gqa=True), (QUERY, KEY)),
    # Which elements are kept is chance; put back, what was dropped gives the same everywhere.
    "dropout": (lambda a: put_back(f.dropout(a.exp(), 0.5), a.exp() * 2), (A,)),
}


def evaluate(expression: Expression, tensors: tuple[Tensor, ...], device: str) -> list[Tensor]:
    """The value, and the gradient of each tensor where there is one."""
    inputs = [tensor.to(device).requires_grad_(tensor.is_floating_point()) for tensor in tensors]
    value = expression(*inputs)
    if not value.requires_grad:
        return [value.cpu()]
    # A gradient that differs from place to place.
    weights = torch.linspace(0.5, 1.5, value.numel(), device="cpu").reshape(value.shape).to(device)
    (value * weights).sum().backward()
    return [value.detach().cpu(), *(tensor.grad.cpu() for tensor in inputs if tensor.grad is not None)]


def compare(name: str) -> str:
    """Return "same", or what is not."""
    expression, tensors = EXPRESSIONS[name]
    expected = evaluate(expression, tensors, "cpu")
    found = evaluate(expression, tensors, "npu")
    for index, (theirs, ours) in enumerate(zip(expected, found)):
        what = "value" if index == 0 else f"gradient {index}"
        if theirs.dtype != ours.dtype or theirs.shape != ours.shape:
            return f"{what}: {ours.dtype} {tuple(ours.shape)} instead of {theirs.dtype} {tuple(theirs.shape)}"
        if not torch.allclose(theirs, ours, atol=1e-5, rtol=1e-4, equal_nan=True):
            return f"{what}: differs by {(theirs - ours).abs().max()}"
    return "same"


if __name__ == "__main__":
    warnings.filterwarnings("error", message=".*fall back to run on the CPU.*")
    for chosen in sys.argv[1:] or EXPRESSIONS:
        try:
            outcome = compare(chosen)
        except RuntimeError as error:
            # One failed operator poisons the process: what follows it says nothing.
            sys.exit(f"{chosen}: {type(error).__name__}: {error}")
        sys.stdout.write(f"{chosen}: {outcome}\n")
        sys.stdout.flush()
