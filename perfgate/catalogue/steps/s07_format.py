"""Step 7: format conversions."""

from __future__ import annotations

from perfgate.catalogue.card import Limit, Metric, Rule, StepCard, Text
from perfgate.catalogue.sources import AS_TRANSFERS, DISPATCH, TRACE, own

CARD = StepCard(
    number=7,
    slug="format",
    title=Text("Format conversions", "格式转换"),
    question=Text(
        "How much of a call only brings tensors from one format or memory order into another?",
        "一次调用中，有多少时间只是把张量从一种格式或内存排布转换成另一种？",
    ),
    how=Text(
        "Conversions are counted and timed by pair of formats and set against all that runs; convolutions are looked "
        "at for inputs and weights that lie in different orders. A call without conversions has 0 of them.",
        "按格式对（如 NCHW -> NC1HWC0）统计转换的次数与耗时，并与全部执行时间相比；同时检查卷积的输入与权重排布"
        "是否一致。没有转换时结果为 0，而不是跳过。",
    ),
    remedy=Text(
        "Keep one format through the model: cast weights once when it is built, put model and inputs into "
        "channels_last together, and move a permute to where data enters or leaves.",
        "整个模型保持一种格式：权重在构建时一次性转换，模型与输入同时使用 channels_last，把 permute 移到数据进出处。",
    ),
    cost=Text(
        "0.1 s on a CPU, and 2 s once a process to load torch's dispatch mode, which step 4 does first; an "
        "accelerator adds nothing where an earlier step has recorded the trace.",
        "CPU 上 0.1 s，另需每个进程一次性加载 torch dispatch mode 约 2 s（通常已由第 4 步完成）；加速器上复用"
        "之前步骤录制的轨迹，无额外耗时。",
    ),
    devices={
        "npu": Text(
            "TransData kernels, and Transpose and Cast kernels that the graph engine put in (trans_*), by Input and "
            "Output Formats; formats of tensors at the boundaries of modules (get_npu_format).",
            "TransData 算子，以及图引擎插入的 Transpose、Cast 算子（trans_*），按输入输出 Format 统计；并用 "
            "get_npu_format 查看模块边界处张量的格式。",
        ),
        "cuda": Text(
            "The kernels nchwToNhwc and nhwcToNchw, with which cuDNN turns tensors around.",
            "cuDNN 用来转换排布的 nchwToNhwc、nhwcToNchw kernel。",
        ),
        "cpu": Text(
            "Copies after which a tensor lies in another order, and explicit reorders of oneDNN, each timed on the host. "
            "What oneDNN reorders inside a convolution no profiler shows; input and weight in different orders tell of "
            "it.",
            "拷贝后张量排布发生变化的算子，以及显式的 oneDNN 重排，均在 Host 上计时。oneDNN 在卷积内部做的重排 "
            "profiler 看不到，只能由输入与权重排布不一致推知。",
        ),
    },
    metrics=(
        Metric(
            name="counters.format_conversions",
            title=Text("format conversions per call", "每次调用的格式转换次数"),
            unit="1",
            better="lower",
            kind="exact",
            step=7,
            explanation=Text(
                "Kernels that only bring a tensor into another layout or format: TransData between NCHW and "
                "NC1HWC0 on Ascend, nchwToNhwc and its like on CUDA. Only where the profiler shows kernels.",
                "只做布局或格式转换的 kernel：昇腾上 NCHW 与 NC1HWC0 之间的 TransData，CUDA 上的 nchwToNhwc 等。"
                "仅在 profiler 能看到 kernel 时给出。",
            ),
            source=TRACE,
        ),
        Metric(
            name="format.conversions",
            title=Text("conversions between formats", "格式间转换次数"),
            unit="1",
            better="lower",
            kind="exact",
            step=7,
            explanation=Text(
                "Conversions in one call, all of them and by pair of formats: kernels on an accelerator, copies that "
                "change the order in memory and reorders of oneDNN on a CPU.",
                "一次调用中的转换次数，给出总数并按格式对细分：加速器上为 kernel，CPU 上为改变内存排布的拷贝与 "
                "oneDNN 重排。",
            ),
            source=TRACE + "; on a CPU " + DISPATCH,
        ),
        Metric(
            name="format.time",
            title=Text("time of conversions", "格式转换耗时"),
            unit="s",
            better="lower",
            kind="noisy",
            step=7,
            explanation=Text(
                "Time that the conversions of one pair of formats take in one call.",
                "一次调用中某一格式对的转换所耗时间。",
            ),
            source=TRACE + "; on a CPU the median time of each operator under the dispatch mode",
        ),
        Metric(
            name="format.share",
            title=Text("format conversion share", "格式转换占比"),
            unit="1",
            better="lower",
            kind="noisy",
            step=7,
            explanation=Text(
                "Share of all conversions in the time of all kernels, collectives apart; on a CPU of all operators.",
                "全部格式转换在所有 kernel（不含集合通信）时间中的占比；CPU 上为在所有算子时间中的占比。",
            ),
            source=TRACE,
            share=True,
        ),
        Metric(
            name="format.mixed_convolutions",
            title=Text("convolutions of mixed order", "排布不一致的卷积数"),
            unit="1",
            better="lower",
            kind="exact",
            step=7,
            explanation=Text(
                "Convolutions in one call whose input lies in another order (NCHW, NHWC) than their weight, so that one "
                "of them is converted inside.",
                "一次调用中输入与权重排布（NCHW、NHWC）不同的卷积个数，其内部必须转换其中之一。",
            ),
            source=DISPATCH,
        ),
        Metric(
            name="format.flips",
            title=Text("changes of order between convolutions", "卷积之间的排布切换次数"),
            unit="1",
            better="lower",
            kind="exact",
            step=7,
            explanation=Text(
                "How often in one call a convolution gets its input in another order than the one before it.",
                "一次调用中，某个卷积的输入排布与前一个卷积不同的次数。",
            ),
            source=DISPATCH,
        ),
        Metric(
            name="format.boundaries",
            title=Text("modules that change the format", "改变格式的模块数"),
            unit="1",
            better="lower",
            kind="exact",
            step=7,
            explanation=Text(
                "Innermost modules that hand on a tensor in another NPU format (ND, NC1HWC0, FRACTAL_NZ) than they got.",
                "最内层模块中，输出张量的 NPU 格式（ND、NC1HWC0、FRACTAL_NZ）与输入不同的个数。",
            ),
            source="torch_npu.get_npu_format in forward hooks",
        ),
    ),
    limits=(
        Limit(
            "format.share.info",
            0.0,
            Text("a conversion computes nothing: each is worth knowing", "转换不做任何计算，每一次都值得知道"),
        ),
        Limit("format.share.warning", 0.05, AS_TRANSFERS),
        Limit(
            "format.share.severe",
            0.3,
            own(
                "as the checklist has it for copies and conversions of data (step 4)",
                "与检查清单第 4 步数据拷贝与转换的阈值相同",
            ),
        ),
        Limit(
            "format.mixed.warning",
            0.0,
            Text(
                "torch takes channels_last where either side is (ATen, determine_backend_memory_format) and converts the "
                "other in every call",
                "只要一侧是 channels_last，torch 就按 channels_last 计算（ATen，determine_backend_memory_format），每次调用都"
                "转换另一侧",
            ),
        ),
    ),
    rules=(
        Rule(
            "format.share",
            Text(
                "tensors are brought from one format into another in every call, most of the time as {pair}; keep one "
                "format through the model, or convert once outside the call",
                "每次调用都在做格式转换，其中耗时最多的是 {pair}；请在整个模型中保持一种格式，或在调用之外一次性转换",
            ),
        ),
        Rule(
            "format.mixed",
            Text(
                "{mixed} of {convolutions} convolutions get their input in another order than their weight has "
                "({input} and {weight}), so one of them is converted inside; put model and inputs into channels_last "
                "together, or neither",
                "{convolutions} 个卷积中有 {mixed} 个的输入与权重排布不同（{input} 与 {weight}），内部必须转换其一；"
                "请让模型和输入同时使用 channels_last，或都不使用",
            ),
        ),
        Rule(
            "format.boundary",
            Text(
                "{modules} modules hand on their result in another NPU format than they got it in, first {module} "
                "({change})",
                "有 {modules} 个模块的输出与输入采用不同的 NPU 格式，首个为 {module}（{change}）",
            ),
        ),
    ),
)
