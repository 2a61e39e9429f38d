"""Where numbers of several steps come from, in the words that ``perfgate explain`` prints as their source."""

from __future__ import annotations

QUANTILE = "sample quantile with an order-statistic (binomial) confidence interval, no distribution assumed"
TRACE = "the recorded profiler trace of steady calls"
DISPATCH = "torch.utils._python_dispatch.TorchDispatchMode over single steady calls, repeated"
