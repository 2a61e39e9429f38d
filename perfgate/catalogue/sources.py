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
INTERPRETER = Text(
    "sys.settrace with frame.f_trace_opcodes over single steady calls, repeated",
    "sys.settrace 与 frame.f_trace_opcodes，逐次统计稳态调用并重复核对",
)
HARDWARE = Text(
    "perf_event_open(2): median over blocks of count / (calls + 1)",
    "perf_event_open(2)：各时间块的 计数 / (调用次数 + 1) 的中位数",
)

# Where limits come from. The list of the twenty steps names eight numbers, in steps 2, 3 and 4, and the list of a check that
# a CI job should make one; all others had to be chosen, by a measurement, by a vendor's document or by us.
CHECKLIST = Text("the twenty-step checklist", "二十步检查清单")
CI_CHECK = Text(
    "the list of what a CI job should check: a kernel of more than 50 ms", "CI 应检查的项目清单：超过 50 ms 的 kernel"
)


def own(why: str, why_in_chinese: str) -> Text:
    """Return the source of a limit that perfgate chose, with its reason."""
    return Text(f"perfgate's own mark: {why}", f"perfgate 自定阈值：{why_in_chinese}")


AS_TRANSFERS = own("as the checklist has it for transfers (step 3)", "与检查清单第 3 步传输的阈值相同")
AS_UTILIZATION = own("as the checklist has it for a busy device (step 2)", "与检查清单第 2 步设备利用率的阈值相同")
