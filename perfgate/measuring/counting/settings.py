"""The settings of torch in the process of the workload, by the name under which code sets them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

_FLAGS: Mapping[str, Callable[[], object]] = {
    "torch.backends.cudnn.enabled": lambda: torch.backends.cudnn.enabled,
    "torch.backends.cudnn.benchmark": lambda: torch.backends.cudnn.benchmark,
    "torch.backends.cudnn.deterministic": lambda: torch.backends.cudnn.deterministic,
    "torch.backends.cudnn.allow_tf32": lambda: torch.backends.cudnn.allow_tf32,
    "torch.backends.cuda.matmul.allow_tf32": lambda: (
        torch.backends.cuda.matmul.allow_tf32
    ),
    "torch.backends.mkldnn.enabled": lambda: torch.backends.mkldnn.enabled,
    "torch.backends.cuda.enable_flash_sdp": torch.backends.cuda.flash_sdp_enabled,
    "torch.backends.cuda.enable_mem_efficient_sdp": torch.backends.cuda.mem_efficient_sdp_enabled,
    "torch.backends.cuda.enable_math_sdp": torch.backends.cuda.math_sdp_enabled,
    "torch.set_float32_matmul_precision": torch.get_float32_matmul_precision,
    "torch.use_deterministic_algorithms": torch.are_deterministic_algorithms_enabled,
    "torch.set_default_dtype": torch.get_default_dtype,
    "torch.set_grad_enabled": torch.is_grad_enabled,
    "torch.autograd.set_detect_anomaly": torch.is_anomaly_enabled,
}
# Modules of settings of torch's compiler, which write those that are not the default as statements.
_COMPILER = ("torch._inductor.config", "torch._dynamo.config")


def process_settings() -> dict[str, str]:
    """Every setting that can be read; of the compiler those that differ from its defaults, if it is loaded."""
    settings: dict[str, str] = {}
    for name, read in _FLAGS.items():
        try:
            settings[name] = str(read())
        except (
            AttributeError,
            RuntimeError,
        ):  # another version of torch, or the old and the new switch of TF32 disagree
            continue
    for module in _COMPILER:
        if module in sys.modules:
            settings.update(_statements(sys.modules[module]))
    return settings


def _statements(config: Any) -> Iterator[tuple[str, str]]:
    for statement in config.codegen_config().splitlines():
        name, is_assignment, value = statement.partition(" = ")
        if is_assignment:
            yield name, value
