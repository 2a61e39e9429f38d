"""Where numbers of several steps come from, in the words that ``perfgate explain`` prints as their source."""

from __future__ import annotations

from perfgate.catalogue.card import Text

QUANTILE = Text(
    "sample quantile with an order-statistic (binomial) confidence interval, no distribution assumed",
    "样本分位数，置信区间取自顺序统计量（二项分布），不假设分布形式",
)
TRACE = Text("the recorded profiler trace of steady calls", "稳态调用的 profiler 轨迹")
DISPATCH = Text(
    "torch.utils._python_dispatch.TorchDispatchMode over single steady calls, repeated",
    "torch.utils._python_dispatch.TorchDispatchMode，逐次统计稳态调用并重复核对",
)

# Where a limit comes from that no vendor and no measurement gave.
CHECKLIST = Text("the twenty-step checklist's own mark", "二十步检查清单自身的阈值")
