"""Step 14: memory layout of tensors."""

from __future__ import annotations

from perfgate.catalogue.card import Limit, Metric, Rule, StepCard, Text
from perfgate.catalogue.sources import AS_TRANSFERS, DISPATCH, TRACE

_OURS = Text(
    "ours: a change of one line that saves less is lost in the noise of a deployment",
    "自定阈值：一行改动若节省更少，在实际部署中会淹没于噪声",
)

CARD = StepCard(
    number=14,
    slug="contiguity",
    title=Text("Memory layout of tensors", "张量内存布局"),
    question=Text(
        "Which operators copy whole tensors, from which line, and would another layout be faster?",
        "哪些算子在整块拷贝张量、来自哪一行代码，换一种内存布局会不会更快？",
    ),
    how=Text(
        "Every operator of a call is looked at as it is dispatched: what it copies and why, what it writes, which of its "
        "inputs lie in no usual order. A model with 2-D convolutions is also run in channels_last, interleaved with itself, "
        "and the outputs are compared.",
        "逐个观察一次调用分发的算子：拷贝了什么、为什么拷贝、写出多少字节、哪些输入不连续。含二维卷积的模型还会以 "
        "channels_last 与自身交替运行，并比对输出。",
    ),
    remedy=Text(
        "Remove the contiguous() or clone() at the line named, or give the next operator the layout it gets; build buffers "
        "in the layout they are used in; call model.to(memory_format=torch.channels_last) where that was measured faster.",
        "去掉所示代码行的 contiguous() 或 clone()，或让下一个算子直接接受该布局；缓冲区按使用时的布局创建；实测更快时使用 "
        "model.to(memory_format=torch.channels_last)。",
    ),
    cost=Text(
        "0.1 s; with 2-D convolutions 2.5 s quick and 10 s in full for all shapes. An accelerator adds "
        "nothing where an earlier step has recorded the trace.",
        "0.1 s；含二维卷积时所有 shape 合计 quick 模式 2.5 s、完整模式 10 s。加速器上复用之前步骤录制的轨迹，无额外耗时。",
    ),
    devices={
        "npu": Text(
            "The same audit, and the share of kernels that copy or rearrange: aclnnContiguous, aclnnInplaceCopy, Slice, "
            "TensorMove, AsStrided, ViewCopy, Transpose. channels_last is no format of an NPU and is not tried.",
            "同样的检查，外加做拷贝或重排的 kernel 占比：aclnnContiguous、aclnnInplaceCopy、Slice、TensorMove、AsStrided、"
            "ViewCopy、Transpose。channels_last 不是 NPU 的格式，不作尝试。",
        ),
        "cuda": Text(
            "The same audit, the share of PyTorch's copy kernels, and channels_last.",
            "同样的检查、PyTorch 拷贝 kernel 的占比，以及 channels_last 对比。",
        ),
        "cpu": Text("The audit, exact, and channels_last.", "逐算子检查（精确），以及 channels_last 对比。"),
    },
    metrics=(
        Metric(
            name="counters.copies",
            title=Text("copies per call", "每次调用的拷贝次数"),
            unit="1",
            better="lower",
            kind="exact",
            step=14,
            explanation=Text(
                "Operators that copy a whole tensor: clone, contiguous, copy_, dtype and device conversions.",
                "整块拷贝张量的算子：clone、contiguous、copy_，以及数据类型和设备转换。",
            ),
            source=DISPATCH,
        ),
        Metric(
            name="counters.copy_bytes",
            title=Text("bytes copied per call", "每次调用拷贝的字节数"),
            unit="B",
            better="lower",
            kind="exact",
            step=14,
            explanation=Text("Bytes written by those copies.", "这些拷贝写出的字节数。"),
            source=DISPATCH,
        ),
        Metric(
            name="counters.noncontiguous_copies",
            title=Text("non-contiguous copies per call", "每次调用的非连续拷贝次数"),
            unit="1",
            better="lower",
            kind="exact",
            step=14,
            explanation=Text(
                "Copies that change the memory layout: source and result differ in strides.",
                "改变内存布局的拷贝：源与结果的 stride 不同。",
            ),
            source=DISPATCH,
        ),
        Metric(
            name="contiguity.copies",
            title=Text("copies by cause", "按原因统计的拷贝次数"),
            unit="1",
            better="lower",
            kind="exact",
            step=14,
            explanation=Text(
                "Whole tensors copied in one call, by what the copy changes: the layout, the device, the dtype, or nothing (a "
                "duplicate). Together they are counters.copies, those of the layout counters.noncontiguous_copies.",
                "一次调用中整块拷贝的张量数，按拷贝改变的内容区分：布局、设备、数据类型，或什么都没变（重复拷贝）。合计即 "
                "counters.copies，其中布局一类即 counters.noncontiguous_copies。",
            ),
            source=DISPATCH,
        ),
        Metric(
            name="contiguity.copy_share",
            title=Text("share of bytes that are copies", "拷贝字节占比"),
            unit="1",
            better="lower",
            kind="exact",
            step=14,
            explanation=Text(
                "Bytes written by copies of one cause over the bytes that all operators of a call write; views write none.",
                "某类拷贝写出的字节在一次调用所有算子写出字节中的占比；视图不写字节。",
            ),
            source=DISPATCH,
            share=True,
        ),
        Metric(
            name="contiguity.strided_inputs",
            title=Text("inputs in no usual order", "不连续的输入数"),
            unit="1",
            better="lower",
            kind="exact",
            step=14,
            explanation=Text(
                "Tensors that operators of one call read and that are contiguous neither in their own order nor in "
                "channels_last; matrix products apart, which read a transposed matrix at no cost.",
                "一次调用中被算子读取、且既不连续也不是 channels_last 的张量数；矩阵乘可直接读取转置矩阵，不计入。",
            ),
            source=DISPATCH,
        ),
        Metric(
            name="contiguity.kernel_share",
            title=Text("share of kernels that rearrange", "重排类 kernel 占比"),
            unit="1",
            better="lower",
            kind="noisy",
            step=14,
            explanation=Text(
                "Share of kernels that only copy or rearrange in the time of all kernels, collectives apart. Format "
                "conversions are step 7's and not among them.",
                "只做拷贝或重排的 kernel 在所有 kernel（不含集合通信）时间中的占比；格式转换属于第 7 步，不计入。",
            ),
            source=TRACE,
            share=True,
        ),
        Metric(
            name="contiguity.channels_last_speedup",
            title=Text("speed-up by channels_last", "channels_last 加速比"),
            unit="1",
            better="neutral",
            kind="noisy",
            step=14,
            explanation=Text(
                "How many times as fast a call is with model and inputs in channels_last, measured in turns with the call "
                "as it is.",
                "模型与输入改用 channels_last 后调用快多少倍，与原调用交替实测。",
            ),
            source="interleaved blocks on a copy of the model, Hodges-Lehmann over the quads",
        ),
    ),
    limits=(
        Limit("contiguity.copy_share.warning", 0.05, AS_TRANSFERS),
        Limit("contiguity.kernel_share.warning", 0.05, AS_TRANSFERS),
        Limit("contiguity.channels_last.info", 1.05, _OURS),
        Limit("contiguity.channels_last.warning", 1.2, _OURS),
    ),
    rules=(
        Rule(
            "contiguity.copy_share",
            Text(
                "copies that change the layout or nothing at all write a large part of what a call writes; most of it is "
                "{op} ({copies} a call)",
                "只改变布局或什么都不改变的拷贝在一次调用写出的字节中占比很大；其中最多的是 {op}（每次调用 {copies} 次）",
            ),
        ),
        Rule(
            "contiguity.kernel_share",
            Text(
                "kernels that only copy or rearrange take a large part of the device's time; most of it is {op}",
                "只做拷贝或重排的 kernel 占用了较多设备时间；其中最多的是 {op}",
            ),
        ),
        Rule(
            "contiguity.channels_last",
            Text(
                "model and inputs in channels_last are faster, and the output is the same; call "
                "model.to(memory_format=torch.channels_last) and hand over inputs in that order",
                "模型与输入改用 channels_last 更快，且输出一致；请调用 model.to(memory_format=torch.channels_last)，并以同样"
                "的排布传入输入",
            ),
        ),
    ),
)
