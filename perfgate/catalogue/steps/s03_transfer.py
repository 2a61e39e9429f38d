"""Step 3: transfer between host and device."""

from __future__ import annotations

from perfgate.catalogue.card import Limit, Metric, Rule, StepCard, Text
from perfgate.catalogue.sources import CHECKLIST, TRACE

CARD = StepCard(
    number=3,
    slug="transfer",
    title=Text("Transfer between host and device", "主机与设备间传输"),
    question=Text(
        "How much of a call is copying inputs and outputs between host and device?",
        "一次调用中，输入输出在 Host 与 Device 之间拷贝占多少？",
    ),
    how=Text(
        "End-to-end calls and device-only calls take turns; the share is (end-to-end - device-only) / end-to-end.",
        "端到端调用与仅设备调用交替进行；占比为（端到端 − 仅设备）/ 端到端。",
    ),
    remedy=Text(
        "Use pinned memory with non_blocking copies, prefetch one batch ahead, or move preprocessing to the device.",
        "使用锁页内存配合 non_blocking 拷贝，提前预取一个 batch，或把预处理移到设备上。",
    ),
    cost=Text(
        "At most 4 s quick and 30 s in full, of the first shape only.",
        "只测第一个 shape：quick 模式至多 4 s，完整模式至多 30 s。",
    ),
    devices={
        "npu": Text(
            "Calls with inputs on the NPU already against calls that copy them: from pageable memory, "
            "pinned without blocking, and one input ahead on a stream of its own.",
            "对比输入已在 NPU 上的调用与需要拷贝的调用：普通内存拷贝、锁页内存非阻塞拷贝、在独立 stream "
            "上提前拷贝下一份输入。",
        ),
        "cuda": Text("The same four ways of a call.", "同样的四种调用方式。"),
        "cpu": Text(
            "Not applicable: the device works in host memory, and there is nothing to copy.",
            "不适用：设备直接使用 Host 内存，没有拷贝。",
        ),
    },
    metrics=(
        Metric(
            name="transfer.share",
            title=Text("transfer overhead", "传输开销"),
            unit="1",
            better="lower",
            kind="noisy",
            step=3,
            explanation=Text(
                "How much of one end-to-end call is the copying of inputs and outputs between host and device.",
                "一次端到端调用中，输入输出在 Host 与 Device 之间拷贝所占的比例。",
            ),
            source="(end-to-end - device-only) / end-to-end, interleaved",
            share=True,
        ),
        Metric(
            name="transfer.exposed_share",
            title=Text("exposed copy share", "未掩盖的拷贝占比"),
            unit="1",
            better="lower",
            kind="noisy",
            step=3,
            explanation=Text(
                "Share of the wall time in which a copy ran and no kernel did.",
                "墙钟时间中只有拷贝在进行、没有 kernel 运行的占比。",
            ),
            source="|copy minus compute| / wall",
            share=True,
        ),
        Metric(
            name="transfer.h2d_bandwidth",
            title=Text("host to device bandwidth", "H2D 带宽"),
            unit="B/s",
            better="higher",
            kind="noisy",
            step=3,
            explanation=Text(
                "Bytes copied to the device per second of copying.", "每秒拷贝到设备的字节数（只计拷贝时间）。"
            ),
            source="bytes / event time",
        ),
        Metric(
            name="transfer.d2h_bandwidth",
            title=Text("device to host bandwidth", "D2H 带宽"),
            unit="B/s",
            better="higher",
            kind="noisy",
            step=3,
            explanation=Text(
                "Bytes copied from the device per second of copying.", "每秒从设备拷回的字节数（只计拷贝时间）。"
            ),
            source="bytes / event time",
        ),
        Metric(
            name="counters.device_copies",
            title=Text("device copies per call", "每次调用的设备拷贝次数"),
            unit="1",
            better="lower",
            kind="exact",
            step=3,
            explanation=Text(
                "Copies and fills by the device's copy engine in one call. Only where the profiler shows them.",
                "一次调用中设备拷贝引擎执行的拷贝与填充次数。仅在 profiler 能看到时给出。",
            ),
            source=TRACE,
        ),
    ),
    limits=(
        Limit("transfer.share.warning", 0.05, CHECKLIST),
        Limit("transfer.share.severe", 0.2, CHECKLIST),
    ),
    rules=(
        Rule(
            "transfer.share",
            Text(
                "copying inputs and outputs takes a large part of a plain end-to-end call; pin the host "
                "memory, copy without blocking, and bring the next input over while the current one is "
                "computed",
                "普通端到端调用中输入输出拷贝占比很大；请使用锁页内存、非阻塞拷贝，并在计算当前输入时提前搬运下一份",
            ),
        ),
    ),
)
