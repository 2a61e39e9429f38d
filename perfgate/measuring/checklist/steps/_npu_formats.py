"""See in which NPU format (ND, NC1HWC0, FRACTAL_NZ) tensors pass from one module to the next."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from perfgate.measuring.checklist.step import StepContext
from perfgate.measuring.devices.batches import tensors


def format_changes(context: StepContext, shape: str) -> dict[str, str] | None:
    """Return innermost modules whose result has another format than their input, with both (``ND -> FRACTAL_NZ``).

    None where torch_npu is not loaded, has no ``get_npu_format``, or the model is no module.
    """
    torch_npu: Any = sys.modules.get("torch_npu")
    if context.device.kind != "npu" or getattr(torch_npu, "get_npu_format", None) is None:
        return None
    import torch

    model = context.workload.model
    if not isinstance(model, torch.nn.Module):
        return None
    changes: dict[str, str] = {}
    innermost = [(name, module) for name, module in model.named_modules() if not list(module.children())]
    hooks = [module.register_forward_hook(partial(_note, changes, name, torch_npu)) for name, module in innermost]
    try:
        context.workload.caller(shape)()
        context.device.synchronize()
    finally:
        for hook in hooks:
            hook.remove()
    return changes


def _note(changes: dict[str, str], name: str, torch_npu: Any, _module: Any, given: Any, made: Any) -> None:
    before, after = next(tensors(given), None), next(tensors(made), None)
    if before is None or after is None:
        return
    formats = [torch_npu.get_npu_format(tensor) for tensor in (before, after)]
    # NCHW, NHWC, ND and NCL are the same bytes under different names (torch_npu FormatHelper, base formats).
    plain = [str(getattr(one, "name", one)) for one in formats]
    if plain[0] != plain[1] and not set(plain) <= {"NCHW", "NHWC", "ND", "NCL", "NCDHW"}:
        changes.setdefault(name or type(_module).__name__, f"{plain[0]} -> {plain[1]}")
