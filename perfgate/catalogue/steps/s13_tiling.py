"""Step 13: tiling and shape alignment."""

from __future__ import annotations

from perfgate.catalogue.card import Limit, Metric, Rule, StepCard, Text
from perfgate.catalogue.sources import AS_UTILIZATION, DISPATCH, own

_BLOCKS = Text(
    "Block Dim (Block Num since CANN 9) of the table of kernels", "kernel 表的 Block Dim（CANN 9 起为 Block Num）"
)
_CUBE = Text(
    "an Ascend cube core multiplies blocks of 16 x 16, and formats such as NC1HWC0 keep channels in groups of 16",
    "昇腾 Cube 核以 16×16 分块做乘法，NC1HWC0 等格式也以 16 为一组存放通道",
)

CARD = StepCard(
    number=13,
    slug="tiling",
    title=Text("Tiling and shape alignment", "分块与形状对齐"),
    question=Text(
        "Are kernels split over all cores, is one of their pipes busy, and do the model's sizes fit the hardware?",
        "算子是否切分到所有核上，是否有流水线处于忙碌状态，模型的尺寸是否与硬件对齐？",
    ),
    how=Text(
        "From the table of kernels: the cores that a kernel is split over, how full the last turn is, and the share of "
        "cycles in which its busiest pipe (mac, vec: computing; mte2, mte3, fixpipe: moving data) works. Beside that "
        "the largest matrix products and convolutions of the model run again by themselves, as they are and padded "
        "with zeros to multiples of 16, in turns; both must give the same result.",
        "从 kernel 表读出：切分到多少核、最后一轮的填充程度，以及最忙的流水线（mac、vec 为计算；mte2、mte3、fixpipe 为搬运）"
        "占周期的比例。另外把模型中最大的矩阵乘和卷积单独重跑，原尺寸与补零到 16 的倍数轮流进行，两者结果必须一致。",
    ),
    remedy=Text(
        "Choose hidden sizes, vocabulary, channels and batch as multiples of 16, or pad weights once when the model is "
        "built. An operator on few cores or without a busy pipe is too small or badly split: larger batches, a fused "
        "operator, or another tiling (operator tuning with AOE) help.",
        "隐藏维度、词表、通道数和 batch 取 16 的倍数，或在构建模型时一次性补齐权重。只用少数核或没有忙碌流水线的算子，"
        "不是太小就是切分不当：增大 batch、换融合算子，或用 AOE 做算子调优以更换分块。",
    ),
    cost=Text(
        "1 to 5 s quick, 20 s in full, for the first shape; on an NPU seconds more where no earlier step has recorded the "
        "trace.",
        "仅测第一个 shape：quick 模式 1～5 s，完整模式 20 s；NPU 上若之前的步骤尚未录制轨迹，另需数秒。",
    ),
    devices={
        "npu": Text(
            "Cores and pipes of the ten heaviest operators at Level1 with PipeUtilization, the host's time in X_Tiling, "
            "and the padded sizes.",
            "Level1 加 PipeUtilization 下最耗时的十个算子的核占用与流水线，Host 侧 X_Tiling 耗时，以及补齐尺寸的对比。",
        ),
        "cuda": Text(
            "The padded sizes only: torch.profiler tells nothing of pipes.",
            "只有补齐尺寸的对比：torch.profiler 不提供流水线信息。",
        ),
        "cpu": Text(
            "The padded sizes only; a library's kernels for CPUs have cliffs of their own.",
            "只有补齐尺寸的对比；CPU 算子库也有自己的尺寸悬崖。",
        ),
    },
    metrics=(
        Metric(
            name="tiling.occupancy",
            title=Text("cores used", "核占用率"),
            unit="1",
            better="higher",
            kind="noisy",
            step=13,
            explanation=Text(
                "Cores that an operator's kernels are split over, of those that the device has of the unit; weighted "
                "by time. Where nobody tells how many there are, most kernels' number stands for it.",
                "算子的 kernel 切分到的核数，占设备该类核总数的比例，按时间加权。核数未知时，以多数 kernel 的切分数代替。",
            ),
            source=_BLOCKS,
            share=True,
        ),
        Metric(
            name="tiling.tail",
            title=Text("tail efficiency", "尾轮效率"),
            unit="1",
            better="higher",
            kind="noisy",
            step=13,
            explanation=Text(
                "Blocks over the blocks that as many turns of all cores could take: 33 blocks on 24 cores take two "
                "turns and use 69 % of them.",
                "块数除以同样轮数下所有核能处理的块数：24 核上 33 块要两轮，只用到 69 %。",
            ),
            source="W / (ceil(W / cores) * cores), W = " + _BLOCKS,
            share=True,
        ),
        Metric(
            name="tiling.attained",
            title=Text("busiest pipe", "最忙流水线占比"),
            unit="1",
            better="higher",
            kind="noisy",
            step=13,
            explanation=Text(
                "Share of all cycles in which the operator's busiest pipe worked, weighted by time. From half on the "
                "operator is bound by computing or by memory; below it is by neither: it waits for its own steps.",
                "算子最忙的流水线工作的周期占比，按时间加权。达到一半即为计算瓶颈或访存瓶颈；更低则两者都不是，而是在等自身"
                "各阶段的衔接。",
            ),
            source="aic_mac_ratio, aiv_vec_ratio, *_mte2_ratio, *_mte3_ratio, aic_fixpipe_ratio of PipeUtilization",
            share=True,
        ),
        Metric(
            name="tiling.host_time",
            title=Text("host time in tiling", "Host 侧 tiling 耗时"),
            unit="s",
            better="lower",
            kind="noisy",
            step=13,
            explanation=Text(
                "Seconds of one call that the host spends in working out how to split kernels.",
                "一次调用中 Host 计算 kernel 切分方式所花的秒数。",
            ),
            source="X_Tiling of api_statistic.csv",
        ),
        Metric(
            name="tiling.aligned_share",
            title=Text("work in fitting sizes", "已对齐的计算量占比"),
            unit="1",
            better="higher",
            kind="noisy",
            step=13,
            explanation=Text(
                "Part of the operations of matrix products and convolutions whose sizes are multiples of 16, or so far "
                "from one that padding would cost more than a quarter.",
                "矩阵乘和卷积的运算量中，尺寸为 16 的倍数、或补齐代价超过四分之一的部分所占比例。",
            ),
            source="torch's own formulas of operations, over " + DISPATCH,
            share=True,
        ),
        Metric(
            name="tiling.padding_gain",
            title=Text("padded over plain", "补齐后的加速比"),
            unit="1",
            better="neutral",
            kind="noisy",
            step=13,
            explanation=Text(
                "How many times as fast a matrix product or convolution of the model is with its operands padded to "
                "multiples of 16. Padding itself is not timed: weights are padded once.",
                "把模型中一个矩阵乘或卷积的操作数补齐到 16 的倍数后，速度是原来的多少倍。补齐本身不计时：权重只补一次。",
            ),
            source="both in turns, operands random; Hodges-Lehmann estimate with its signed-rank interval",
        ),
    ),
    limits=(
        Limit("tiling.attained.warning", 0.5, AS_UTILIZATION),
        Limit("tiling.occupancy.warning", 0.5, AS_UTILIZATION),
        Limit(
            "tiling.heavy",
            0.1,
            own("an operator with less of the time is not worth a look at its shape", "占比更小的算子不值得调整 shape"),
        ),
        Limit(
            "tiling.padding_gain.warning", 1.05, own("a twentieth faster, padding included", "含补齐在内快二十分之一")
        ),
        Limit("tiling.multiple", 16, _CUBE),
    ),
    rules=(
        Rule(
            "tiling.attained",
            Text(
                "{op} takes much of the time and is bound neither by computing nor by memory: no pipe of the {unit} "
                "cores is busy for half of its cycles",
                "{op} 耗时占比高，却既非计算瓶颈也非访存瓶颈：{unit} 核上没有一条流水线的忙碌周期达到一半",
            ),
        ),
        Rule(
            "tiling.occupancy",
            Text(
                "{op} takes much of the time and is split over less than half of the {unit} cores",
                "{op} 耗时占比高，却只切分到不足一半的 {unit} 核上",
            ),
        ),
        Rule(
            "tiling.padding_gain",
            Text(
                "{op} on {sizes} is slower than on {padded}: its sizes do not fit the blocks that the hardware works in",
                "{op} 在 {sizes} 上比补齐到 {padded} 更慢：其尺寸与硬件的分块不对齐",
            ),
        ),
    ),
)
