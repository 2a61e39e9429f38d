"""What the times of parts of a call are called: ``op.aten::mm``, ``module.Encoder.layers.*``, ``function.model.py:attend``."""

from __future__ import annotations

from perfgate.catalogue.card import Metric, Text
from perfgate.catalogue.sources import TRACE

OPERATOR_TIME, MODULE_TIME, FUNCTION_TIME = "op.", "module.", "function."
PYTHON_TIMES = (MODULE_TIME, FUNCTION_TIME)
SUBROUTINE_TIMES = (OPERATOR_TIME, *PYTHON_TIMES)

_PARTS = {
    OPERATOR_TIME: ("Self time of the operator {}", "算子 {} 在一次调用中的自身耗时"),
    MODULE_TIME: ("Time of the module {} with all that it calls", "模块 {} 及其全部调用在一次调用中的耗时"),
    FUNCTION_TIME: ("Time of the function {} with all that it calls", "函数 {} 及其全部调用在一次调用中的耗时"),
}


def paired_time(name: str) -> Metric:
    """Return the metric of a part."""
    kind, _, part = name.partition(".")
    english, chinese = _PARTS[kind + "."]
    return Metric(
        name,
        Text(f"time of `{part}`", f"`{part}` 耗时"),
        "s",
        "lower",
        "noisy",
        4,
        Text(
            f"{english.format(part)} in one call, compared within every pair, where a tolerance asks for it.",
            f"{chinese.format(part)}，在每对进程内比较；仅在设置了容差时判定。",
        ),
        TRACE,
    )
