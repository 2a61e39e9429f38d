"""Step 20: regression gate."""

from __future__ import annotations

from perfgate.catalogue.card import Metric, StepCard, Text

CARD = StepCard(
    number=20,
    slug="regression",
    title=Text("Regression gate", "回归门禁"),
    question=Text(
        "Is the change slower, heavier or wrong, compared with its base on this machine?",
        "与同机测得的 base 相比，这次改动是否更慢、更耗资源或结果出错？",
    ),
    how=Text(
        "Exact counters are compared first. Time is compared over pairs of processes of base and head that take "
        "turns on the same core, by an exact signed-rank test corrected for all metrics together. Base against "
        "base in the same job gives the noise floor.",
        "先比较精确计数。时间按 base 与 head 的进程对比较：两者在同一核上轮流运行，用精确符号秩检验判"
        "定，并对全部指标一起校正。同一作业中 base 对 base 给出噪声底。",
    ),
    remedy=Text(
        "See the Why part of the comment: it names the operator and the line. `perfgate local` gives the same "
        "verdict before pushing.",
        "看评论中的“原因”部分：它给出算子和代码行。推送前用 `perfgate local` 可得到同样的判定。",
    ),
    cost=Text(
        "20 to 90 s a workload: pairs are measured until they decide, at most for the budget under [gate].",
        "每个 workload 20 到 90 s：逐对测量直到可以判定，最多用完 [gate] 中的 budget。",
    ),
    devices={
        "npu": Text(
            "Base and head take turns on one card; launches, format conversions, copies and collectives "
            "are exact counters there.",
            "base 与 head 在同一张卡上轮流运行；kernel 下发、格式转换、拷贝和集合通信为精确计数。",
        ),
        "cuda": Text(
            "Base and head take turns on one card; kernels, copies and collectives are exact counters there.",
            "base 与 head 在同一张卡上轮流运行；kernel、拷贝和集合通信为精确计数。",
        ),
        "cpu": Text(
            "Base and head take turns on one pinned core; framework operators, copies and memory are "
            "exact counters there.",
            "base 与 head 绑定同一核轮流运行；框架算子、拷贝和内存为精确计数。",
        ),
    },
    metrics=(
        Metric(
            name="correctness",
            title=Text("correctness check", "正确性检查"),
            unit="1",
            better="neutral",
            kind="exact",
            step=20,
            explanation=Text(
                "The workload's own check of its output. A check that fails fails the gate: a faster wrong model "
                "never passes.",
                "workload 自带的输出检查。检查失败则门禁失败：更快但结果错误的模型不会通过。",
            ),
            source="the workload's `check`",
        ),
        Metric(
            name="correctness.signature",
            title=Text("output signature", "输出签名"),
            unit="1",
            better="neutral",
            kind="exact",
            step=20,
            explanation=Text(
                "Structure, shapes and dtypes of what a call returns, e.g. (float32[8,48],). A change that only "
                "makes code faster returns the same, so a signature that differs fails the gate; no check of the "
                "workload is needed for it.",
                "一次调用返回值的结构、shape 和 dtype，例如 (float32[8,48],)。只是提速的改动返回值应当相同，"
                "因此签名不同则门禁失败；无需 workload 提供检查。",
            ),
            source="one call per shape on inputs of the same seed on both sides",
        ),
        Metric(
            name="sla.p99",
            title=Text("P99 against the SLA", "P99 与 SLA"),
            unit="s",
            better="lower",
            kind="noisy",
            step=20,
            explanation=Text(
                "The P99 latency the workload promises. Broken by the head, it fails the gate; broken by both "
                "sides, it warns.",
                "workload 承诺的 P99 时延。head 违反则门禁失败；两侧都违反则告警。",
            ),
            source="lower end of the P99 interval against the workload's SLA",
        ),
    ),
)
