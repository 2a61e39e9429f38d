"""Step 6: operator fusion."""

from __future__ import annotations

from perfgate.catalogue.card import Limit, Metric, Rule, StepCard, Text
from perfgate.catalogue.sources import AS_TRANSFERS, TRACE

_DATAFLOW = Text(
    "the flow of data between the operators of one call, by torch.utils._python_dispatch.TorchDispatchMode",
    "一次调用中算子之间的数据流，由 torch.utils._python_dispatch.TorchDispatchMode 记录",
)

CARD = StepCard(
    number=6,
    slug="fusion",
    title=Text("Operator fusion", "算子融合"),
    question=Text(
        "Which operators run one after another on the same data although one kernel could do their work?",
        "哪些算子依次处理同一份数据，而本可以由一个 kernel 完成？",
    ),
    how=Text(
        "One steady call is watched operator by operator: which takes the result of which. Found are attention, layer "
        "and RMS normalization and GELU that are written out, a convolution or matrix product whose normalization, bias "
        "and activation follow as operators of their own, and three or more elementwise operators in a row. A short "
        "trace says what those operators cost; products themselves are not counted as cost, since fusing keeps them. "
        "What the compiler makes of the call is timed by step 9, and by that step alone. Of a "
        "recording the kernels are looked at in their order: fused ones by name, and elementwise ones that follow one "
        "another on one stream.",
        "逐算子观察一次稳态调用，记录谁使用了谁的输出。识别出手写展开的注意力、LayerNorm、RMSNorm 与 GELU，归一化、"
        "偏置、激活作为独立算子跟在卷积或矩阵乘之后的情形，以及连续三个以上的逐元素算子。用一段短轨迹给出这些算子的"
        "耗时；矩阵乘和卷积本身不计入，因为融合后它们仍在。编译后调用的快慢只由第 9 步计时。"
        "对录制的轨迹则按 kernel 顺序判断：按名称识别融合 kernel，以及同一条流上相继执行的逐元素 kernel。",
    ),
    remedy=Text(
        "Use the operator that does it in one: scaled_dot_product_attention, layer_norm, rms_norm, gelu; fold batch "
        "normalization into the convolution (torch.nn.utils.fusion.fuse_conv_bn_eval); on an NPU torch_npu's "
        "npu_fusion_attention, npu_rms_norm, npu_swiglu. Elementwise chains are what torch.compile, or graph mode, "
        "fuses.",
        "改用一步到位的算子：scaled_dot_product_attention、layer_norm、rms_norm、gelu；把 BatchNorm 折叠进卷积"
        "（torch.nn.utils.fusion.fuse_conv_bn_eval）；NPU 上使用 torch_npu 的 npu_fusion_attention、npu_rms_norm、"
        "npu_swiglu。逐元素链可由 torch.compile 或图模式融合。",
    ),
    cost=Text(
        "2 s quick for one shape, 1 s more for each other.",
        "quick 模式一个 shape 2 s，每多一个加 1 s。",
    ),
    devices={
        "npu": Text(
            "Patterns by the flow of data; their cost where the trace joins operators and kernels; fused kernels by "
            "their type (FlashAttentionScore, AddRmsNorm), sequences of elementwise AI Vector kernels, and what the "
            "graph engine wrote into fusion_result.json. Eager mode leaves no such report.",
            "按数据流识别模式；轨迹能关联算子与 kernel 时给出耗时；按类型识别融合 kernel（FlashAttentionScore、"
            "AddRmsNorm），识别逐元素 AI Vector kernel 序列，并读取图引擎写出的 fusion_result.json。单算子模式没有该报告。",
        ),
        "cuda": Text(
            "Patterns by the flow of data, their cost by the kernels they launched; fused kernels by name (triton_, "
            "fmha, flash_fwd).",
            "按数据流识别模式，耗时取其启动的 kernel；按名称识别融合 kernel（triton_、fmha、flash_fwd）。",
        ),
        "cpu": Text(
            "Patterns by the flow of data, their cost by the operators' time on the host; fused ones by name "
            "(cpp_fused_, mkldnn::_linear_pointwise). There are no kernels to count.",
            "按数据流识别模式，耗时取算子在 Host 上的时间；按名称识别融合算子（cpp_fused_、"
            "mkldnn::_linear_pointwise）。没有 kernel 可数。",
        ),
    },
    metrics=(
        Metric(
            name="fusion.patterns",
            title=Text("unfused patterns per call", "每次调用的未融合模式数"),
            unit="1",
            better="lower",
            kind="exact",
            step=6,
            explanation=Text(
                "How many groups of operators in one call could each be one kernel. An operator is in one group at most.",
                "一次调用中有多少组算子各自可以由一个 kernel 完成。一个算子至多属于一组。",
            ),
            source=_DATAFLOW,
        ),
        Metric(
            name="fusion.share",
            title=Text("time in unfused patterns", "未融合模式耗时占比"),
            unit="1",
            better="lower",
            kind="noisy",
            step=6,
            explanation=Text(
                "Share of the operators' time that goes to those that fusing would merge into others. It is the most "
                "that fusing could gain and more than it will: what is merged still has to be computed. Patterns whose "
                "cost is not known are not in it.",
                "可被融合掉的算子占算子总时间的比例。这是融合收益的上限，实际收益更小：被合并的计算仍要完成。耗时未知的模式不计入。",
            ),
            source=TRACE,
            share=True,
        ),
        Metric(
            name="fusion.kernels_per_op",
            title=Text("kernels per operator", "每个算子的 kernel 数"),
            unit="1",
            better="lower",
            kind="noisy",
            step=6,
            explanation=Text(
                "Kernels that one call runs, over the framework operators it dispatches. Below 1 where compiled kernels "
                "do the work of several operators.",
                "一次调用运行的 kernel 数除以分发的框架算子数。小于 1 表示编译后的 kernel 完成了多个算子的工作。",
            ),
            source=TRACE,
        ),
        Metric(
            name="fusion.fused_kernels",
            title=Text("fused kernels per call", "每次调用的融合 kernel 数"),
            unit="1",
            better="neutral",
            kind="noisy",
            step=6,
            explanation=Text(
                "Kernels, on a CPU operators, whose name says that they do the work of several operators.",
                "名称表明完成了多个算子工作的 kernel 数；CPU 上为算子数。",
            ),
            source=TRACE,
        ),
        Metric(
            name="fusion.sequences",
            title=Text("fusible kernel sequences per call", "每次调用的可融合 kernel 序列数"),
            unit="1",
            better="lower",
            kind="noisy",
            step=6,
            explanation=Text(
                "Three or more elementwise kernels right after one another on one stream, the shape of each result "
                "among the next one's inputs where shapes were recorded. Order is not the flow of data: a hint.",
                "同一条流上相继执行的三个以上逐元素 kernel；录制了 shape 时，要求前一个的输出 shape 出现在后一个的输入中。"
                "顺序不等于数据流，仅作提示。",
            ),
            source=TRACE,
        ),
        Metric(
            name="fusion.sequence_share",
            title=Text("time in fusible kernel sequences", "可融合 kernel 序列耗时占比"),
            unit="1",
            better="lower",
            kind="noisy",
            step=6,
            explanation=Text("Share of the kernels' time spent in such sequences.", "此类序列占 kernel 总时间的比例。"),
            source=TRACE,
            share=True,
        ),
        Metric(
            name="fusion.graph_fusions",
            title=Text("fusions by the graph engine", "图引擎完成的融合次数"),
            unit="1",
            better="neutral",
            kind="noisy",
            step=6,
            explanation=Text(
                "How often passes of the graph engine took effect, over all graphs that were compiled.",
                "图引擎各融合 pass 的生效次数，对所有已编译的图求和。",
            ),
            source=Text(
                "effect_times in fusion_result.json, which CANN's graph engine writes when it compiles a graph",
                "CANN 图引擎编译图时写出的 fusion_result.json 中的 effect_times",
            ),
        ),
    ),
    limits=(
        Limit("fusion.share.warning", 0.05, AS_TRANSFERS),
        Limit("fusion.sequence_share.warning", 0.05, AS_TRANSFERS),
    ),
    rules=(
        Rule(
            "fusion.attention",
            Text(
                "attention runs as matrix product, softmax and matrix product; scaled_dot_product_attention does it in "
                "one operator, given tensors of four dimensions",
                "注意力被拆成矩阵乘、softmax、矩阵乘执行；scaled_dot_product_attention 在输入为四维张量时可用一个算子完成",
            ),
        ),
        Rule(
            "fusion.layer_norm",
            Text(
                "layer normalization is written out in {ops}; torch.nn.functional.layer_norm does it in one operator",
                "LayerNorm 被手写展开为 {ops}；torch.nn.functional.layer_norm 可用一个算子完成",
            ),
        ),
        Rule(
            "fusion.rms_norm",
            Text(
                "RMS normalization is written out in {ops}; torch.nn.functional.rms_norm, on an NPU npu_rms_norm, does "
                "it in one operator",
                "RMSNorm 被手写展开为 {ops}；torch.nn.functional.rms_norm（NPU 上为 npu_rms_norm）可用一个算子完成",
            ),
        ),
        Rule(
            "fusion.conv_norm_activation",
            Text(
                "a convolution is followed by {ops} as operators of their own; fold the normalization into the weights, "
                "or compile",
                "卷积之后 {ops} 作为独立算子执行；请把归一化折叠进权重，或使用编译",
            ),
        ),
        Rule(
            "fusion.matmul_activation",
            Text(
                "a matrix product is followed by {ops} as operators of their own; a compiled graph computes them with it",
                "矩阵乘之后 {ops} 作为独立算子执行；编译后的图可与矩阵乘一并完成",
            ),
        ),
        Rule(
            "fusion.gelu",
            Text(
                "GELU is written out in {ops}; torch.nn.functional.gelu does it in one operator",
                "GELU 被手写展开为 {ops}；torch.nn.functional.gelu 可用一个算子完成",
            ),
        ),
        Rule(
            "fusion.elementwise",
            Text(
                "{ops} each read and write the whole tensor one after another; a compiled graph does it in one kernel",
                "{ops} 依次各自读写整个张量；编译后的图可用一个 kernel 完成",
            ),
        ),
        Rule(
            "fusion.sequence_share",
            Text(
                "elementwise kernels run right after one another, {kernels} most of the time; as a compiled graph they "
                "may be one kernel",
                "逐元素 kernel 相继执行，以 {kernels} 耗时最多；编译成图后可能合并为一个 kernel",
            ),
        ),
        Rule(
            "fusion.pass_without_effect",
            Text(
                "the graph engine's pass {name} matched and never took effect",
                "图引擎的融合 pass {name} 匹配成功但从未生效",
            ),
        ),
        Rule(
            "fusion.unknown_cost",
            Text(
                "{ops} could be one kernel ({kind}); what they cost is not known, for the trace does not show them as "
                "they were dispatched",
                "{ops} 可由一个 kernel 完成（{kind}）；其耗时未知，因为轨迹中的算子与分发的不一致",
            ),
        ),
    ),
)
