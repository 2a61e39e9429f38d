"""Step 8: mixed precision."""

from __future__ import annotations

from perfgate.catalogue.card import Limit, Metric, Rule, StepCard, Text
from perfgate.catalogue.sources import DISPATCH, TRACE

_RECOMMENDED = Text(
    "ours: below a tenth the digits given up buy too little; measured on the lower end of the interval",
    "自定阈值：加速不足一成时，牺牲的精度换来的太少；以置信区间下限判断",
)
_COPIED = "the outputs of the same input in both precisions, in double precision"

CARD = StepCard(
    number=8,
    slug="precision",
    title=Text("Mixed precision", "混合精度"),
    question=Text(
        "Would lower precision make the call faster, and would the output still be right?",
        "降低精度能否加快调用，输出是否仍然正确？",
    ),
    how=Text(
        "The call as it is takes turns with itself under autocast (bfloat16, float16 where the device has no bfloat16); a "
        "model that computes in low precision already takes turns with a copy of it in float32. Outputs of one input are "
        "compared, and the workload's own check sees the low-precision one.",
        "原调用与 autocast（bfloat16；设备不支持时用 float16）下的调用交替运行；已是低精度的模型则与其 float32 副本交替运"
        "行。比较同一输入的输出，并让 workload 自带的 check 检查低精度输出。",
    ),
    remedy=Text(
        "Put the call under torch.autocast where it is faster and right; keep what overflows or loses digits (large sums, "
        "norms) in float32; convert once, not in every call, and leave no large product in float32 by accident.",
        "在更快且正确时把调用置于 torch.autocast 之下；会溢出或丢失精度的部分（大规模求和、归一化）保留 float32；只转换一"
        "次而不是每次调用都转换，也不要无意中把大的矩阵乘留在 float32。",
    ),
    cost=Text(
        "4 s quick, 20 s in full for all shapes together; an accelerator adds nothing where an earlier step has recorded the "
        "trace.",
        "所有 shape 合计 quick 模式 4 s，完整模式 20 s；加速器上复用之前步骤录制的轨迹，无额外耗时。",
    ),
    devices={
        "npu": Text(
            "All of it, and by kernels: the share of MatMul, Conv and FlashAttention time by Input Data Types, how much of it "
            "was HF32 Eligible, count and time of Cast.",
            "包含全部内容；并按 kernel 给出：MatMul、Conv、FlashAttention 耗时中各 Input Data Type 的占比、HF32 Eligible 的"
            "占比、Cast 的次数与耗时。",
        ),
        "cuda": Text(
            "All of it; kernels tell their precision by name (s16816, bf16, tf32).",
            "包含全部内容；kernel 的精度由名称得知（s16816、bf16、tf32）。",
        ),
        "cpu": Text(
            "All of it. Without instructions for bfloat16 (AMX, AVX512-BF16) low precision is often slower: that is an answer "
            "too.",
            "包含全部内容。没有 bfloat16 指令（AMX、AVX512-BF16）的 CPU 上低精度往往更慢：这也是一种结论。",
        ),
    },
    metrics=(
        Metric(
            name="counters.low_precision_ops",
            title=Text("low-precision ops per call", "每次调用的低精度算子数"),
            unit="1",
            better="neutral",
            kind="exact",
            step=8,
            explanation=Text(
                "Framework operators whose result is in less than 32-bit floating point (float16, bfloat16, "
                "float8, quantized), and float32 matrix products where the program allowed the library to round "
                "their inputs. Neither good nor bad: it may be faster, and the output loses digits. A rise warns,"
                " with operator and line, unless the workload has a check of its output and that passes. Where operators "
                "fall back to full precision the comparison names them, and the line that had asked for less.",
                "结果低于 32 位浮点（float16、bfloat16、float8、量化）的框架算子，以及程序允许库对输入取舍的 float32 矩阵乘。"
                "本身无所谓好坏：可能更快，但输出会损失精度。增多时给出警告以及算子和代码行，除非 workload 自带的 check 通过。"
                "若算子退回到全精度，比较结果会指出这些算子，以及原先要求低精度的代码行。",
            ),
            source="dtypes of results, over " + DISPATCH,
        ),
        Metric(
            name="precision.low_share",
            title=Text("low-precision share of products", "矩阵乘与卷积的低精度占比"),
            unit="1",
            better="neutral",
            kind="noisy",
            step=8,
            explanation=Text(
                "Share of matrix products, convolutions and attention that read less than 32-bit floating point: of their "
                "arithmetic (of: flops), or of the time of their kernels (of: time).",
                "读取低于 32 位浮点的矩阵乘、卷积与注意力所占比例：按运算量（of: flops）或按 kernel 耗时（of: time）。",
            ),
            source="torch.utils.flop_counter's formulas over " + DISPATCH + "; kernels by " + TRACE,
            share=True,
        ),
        Metric(
            name="precision.speedup",
            title=Text("speed-up by low precision", "低精度加速比"),
            unit="1",
            better="neutral",
            kind="noisy",
            step=8,
            explanation=Text(
                "How many times as fast a call is in low precision as in full: against: as_is measures autocast against the "
                "workload, against: full the workload against a float32 copy of it.",
                "低精度调用比全精度快多少倍：against: as_is 表示 autocast 与原 workload 相比，against: full 表示原 workload 与"
                "其 float32 副本相比。",
            ),
            source="interleaved blocks, Hodges-Lehmann over the quads",
        ),
        Metric(
            name="precision.error",
            title=Text("error of low precision", "低精度误差"),
            unit="1",
            better="lower",
            kind="noisy",
            step=8,
            explanation=Text(
                "The largest difference between both outputs, as a share of the largest value of the full-precision one.",
                "两个输出之间的最大差值，相对于全精度输出最大绝对值。",
            ),
            source=_COPIED,
        ),
        Metric(
            name="precision.absolute_error",
            title=Text("absolute error of low precision", "低精度绝对误差"),
            unit="1",
            better="lower",
            kind="noisy",
            step=8,
            explanation=Text("The largest difference between both outputs.", "两个输出之间的最大差值。"),
            source=_COPIED,
        ),
        Metric(
            name="precision.cosine",
            title=Text("cosine of both outputs", "两个输出的余弦相似度"),
            unit="1",
            better="higher",
            kind="noisy",
            step=8,
            explanation=Text(
                "Cosine of the angle between both outputs, the smallest of all tensors.",
                "两个输出夹角的余弦，取所有张量中最小者。",
            ),
            source=_COPIED,
        ),
        Metric(
            name="precision.not_finite",
            title=Text("new NaN or infinity", "新增的 NaN 或无穷"),
            unit="1",
            better="lower",
            kind="noisy",
            step=8,
            explanation=Text(
                "Elements that are NaN or infinite in the low-precision output and finite in the other.",
                "低精度输出中为 NaN 或无穷、而另一输出中为有限值的元素个数。",
            ),
            source=_COPIED,
        ),
        Metric(
            name="precision.memory_ratio",
            title=Text("peak memory of low precision", "低精度峰值内存比"),
            unit="1",
            better="lower",
            kind="exact",
            step=8,
            explanation=Text(
                "Peak memory of a call in low precision over that in full.", "低精度调用与全精度调用的峰值内存之比。"
            ),
            source="the allocator's statistics of single calls",
        ),
        Metric(
            name="precision.casts",
            title=Text("casts per call", "每次调用的类型转换次数"),
            unit="1",
            better="lower",
            kind="exact",
            step=8,
            explanation=Text(
                "Tensors converted to another dtype in one call: Cast kernels on an NPU, copies elsewhere.",
                "一次调用中被转换数据类型的张量数：NPU 上为 Cast 算子，其他设备上为拷贝。",
            ),
            source=TRACE + "; else " + DISPATCH,
        ),
        Metric(
            name="precision.cast_share",
            title=Text("share of casts", "类型转换占比"),
            unit="1",
            better="lower",
            kind="noisy",
            step=8,
            explanation=Text(
                "Share of casts in the time of all kernels, collectives apart; on a CPU of all operators.",
                "类型转换在所有 kernel（不含集合通信）时间中的占比；CPU 上为在所有算子时间中的占比。",
            ),
            source=TRACE,
            share=True,
        ),
        Metric(
            name="precision.rounded_share",
            title=Text("share of rounded products (HF32, TF32)", "取舍乘法占比（HF32、TF32）"),
            unit="1",
            better="neutral",
            kind="noisy",
            step=8,
            explanation=Text(
                "Share of the time of float32 matrix products and convolutions in which the device rounded their inputs "
                "(HF32 Eligible on Ascend, tf32 in the name of a CUDA kernel): such a product is not float32 speed.",
                "float32 矩阵乘与卷积耗时中，设备对输入做了取舍的占比（昇腾为 HF32 Eligible，CUDA kernel 名中含 tf32）：这样的"
                "乘法并不是真正的 float32 速度。",
            ),
            source=TRACE,
            share=True,
        ),
    ),
    limits=(
        Limit("precision.gain.info", 1.1, _RECOMMENDED),
        Limit(
            "precision.gain.warning",
            1.5,
            Text("ours: a third of the time is worth a look by everyone", "自定阈值：节省三分之一时间值得所有人关注"),
        ),
        Limit(
            "precision.error.warning",
            0.02,
            Text(
                "ours: five steps of bfloat16, whose steps are 1/256 of a value (8 bits of mantissa)",
                "自定阈值：bfloat16 的五个最小步长，其步长为数值的 1/256（8 位尾数）",
            ),
        ),
        Limit(
            "precision.low_share.warning",
            0.9,
            Text(
                "ours: a model of mixed precision should leave less than a tenth of its products in full",
                "自定阈值：混合精度模型留在全精度的矩阵乘应少于一成",
            ),
        ),
        Limit(
            "precision.cast_share.warning",
            0.1,
            Text("ours: casts compute nothing", "自定阈值：类型转换不做任何计算"),
        ),
    ),
    rules=(
        Rule(
            "precision.gain",
            Text(
                "the call is faster under autocast to {dtype}, and the output stays within the tolerance",
                "调用在 autocast（{dtype}）下更快，且输出在容差之内",
            ),
        ),
        Rule(
            "precision.inaccurate",
            Text(
                "the call would be faster under autocast to {dtype}, but its output is then not right: {why}",
                "调用在 autocast（{dtype}）下会更快，但输出不正确：{why}",
            ),
        ),
        Rule(
            "precision.slower",
            Text(
                "the model computes in {dtype}, and a float32 copy of it is faster on this device",
                "模型以 {dtype} 计算，但其 float32 副本在该设备上更快",
            ),
        ),
        Rule(
            "precision.error",
            Text(
                "the model computes in {dtype}, and its output is further from that of a float32 copy than the tolerance",
                "模型以 {dtype} 计算，其输出与 float32 副本之差超出容差",
            ),
        ),
        Rule(
            "precision.not_finite",
            Text(
                "{elements} elements of the output are NaN or infinite in {dtype} and finite in a float32 copy of the model",
                "输出中有 {elements} 个元素在 {dtype} 下为 NaN 或无穷，而在 float32 副本中为有限值",
            ),
        ),
        Rule(
            "precision.low_share",
            Text(
                "a part of the products of a model in low precision is computed in {dtype}, the largest by {op}",
                "低精度模型中有一部分矩阵乘以 {dtype} 计算，其中最大的是 {op}",
            ),
        ),
        Rule(
            "precision.cast_share",
            Text(
                "tensors are converted between dtypes for a large part of the time, mostly as {change}",
                "数据类型转换占用了较多时间，主要是 {change}",
            ),
        ),
        Rule(
            "precision.rounded",
            Text(
                "the program allows the library to round the inputs of float32 products ({switches}), so full precision is "
                "not what is measured as such",
                "程序允许库对 float32 矩阵乘的输入做取舍（{switches}），因此所测的“全精度”并非真正的 float32",
            ),
        ),
    ),
)
