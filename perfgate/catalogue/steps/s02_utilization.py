"""Step 2: device utilization."""

from __future__ import annotations

from perfgate.catalogue.card import Limit, Metric, Rule, StepCard, Text
from perfgate.catalogue.sources import AS_UTILIZATION, CHECKLIST, DISPATCH, TRACE

CARD = StepCard(
    number=2,
    slug="utilization",
    title=Text("Device utilization", "设备利用率"),
    question=Text(
        "Is the device busy while the model runs, or does it wait for the host?",
        "模型运行时设备是在忙，还是在等 Host？",
    ),
    how=Text(
        "The union of all kernels in a recorded trace, over the wall time of calls without the profiler. A device"
        " that is the host itself has no such timeline: there, CPU time over wall time and granted CPUs.",
        "轨迹中所有 kernel 区间的并集，除以不开 profiler 时调用的墙钟时间。设备就是 Host 本身时没有这"
        "样的时间线：此时取进程 CPU 时间除以墙钟时间与可用 CPU 数之积。",
    ),
    remedy=Text(
        "Low utilization with many small operators is launch overhead: fuse, compile, or raise the batch size. "
        "With few operators, look for synchronisations such as .item() and for copies between the calls.",
        "利用率低且小算子多，是下发开销：做融合、用图模式，或增大 batch。算子不多而利用率低，则检查 "
        ".item() 之类的同步以及调用之间的拷贝。",
    ),
    cost=Text(
        "On a CPU 0.3 s a shape quick and 1 s in full; a device adds the trace that steps 4 to 18 look at too, seconds on an "
        "NPU, and in full five seconds of the driver's readings.",
        "CPU 上每个 shape quick 模式 0.3 s，完整模式 1 s；有设备时另录制一份轨迹，供第 4～18 步共用（NPU 上需数秒），"
        "完整模式再加五秒的驱动读数。",
    ),
    devices={
        "npu": Text(
            "Kernels of all streams from torch_npu.profiler over the wall time without it, and what "
            "npu-smi reports (AICore usage).",
            "torch_npu.profiler 中所有 stream 的 kernel 时间除以不开 profiler 的墙钟时间，以及 npu-smi 上"
            "报的 AICore 利用率。",
        ),
        "cuda": Text(
            "Kernels of all streams from the CUDA activities of torch.profiler, and what nvidia-smi reports.",
            "torch.profiler 的 CUDA 活动中所有 stream 的 kernel 时间，以及 nvidia-smi 上报的利用率。",
        ),
        "cpu": Text(
            "Only the host's own utilization: CPU time over wall time and granted CPUs. There is no device to idle.",
            "只有 Host 自身的利用率：CPU 时间除以墙钟时间与可用 CPU 数之积。没有设备，也就谈不上设备空闲。",
        ),
    },
    metrics=(
        Metric(
            name="utilization.busy",
            title=Text("device utilization", "设备利用率"),
            unit="1",
            better="higher",
            kind="noisy",
            step=2,
            explanation=Text(
                "Share of the unprofiled wall time in which at least one kernel ran on the device. Of a recording"
                " made elsewhere it is the share of its steps in which a kernel ran, of computing or of a "
                "collective, under the profiler, which stretches gaps.",
                "不开 profiler 的墙钟时间中，设备上至少有一个 kernel 在运行的占比。对他处录制的数据，则是各 "
                "step 中有 kernel（计算或集合通信）运行的时间占比；录制时开着 profiler，间隙会被拉长。",
            ),
            source="union of kernel intervals over all streams, from " + TRACE,
            share=True,
        ),
        Metric(
            name="utilization.computing",
            title=Text("computing share of a step", "step 中的计算占比"),
            unit="1",
            better="higher",
            kind="noisy",
            step=2,
            explanation=Text(
                "Of a recording: the share of its steps in which a kernel computed. With communication and copies that "
                "nothing hides (communication.exposed, transfer.exposed_share), preparing (preprocess.preparing_share) and "
                "free time it adds up to the step.",
                "对录制数据：各 step 中有 kernel 在计算的时间占比。与未被掩盖的通信和拷贝（communication.exposed、"
                "transfer.exposed_share）、准备（preprocess.preparing_share）以及空闲时间相加，等于整个 step。",
            ),
            source="union of computing kernels over all streams / length of the steps",
            share=True,
        ),
        Metric(
            name="utilization.free",
            title=Text("free share of a step", "step 中的空闲占比"),
            unit="1",
            better="lower",
            kind="noisy",
            step=2,
            explanation=Text(
                "Of a recording: the share of its steps in which the device did nothing after its first kernel.",
                "对录制数据：各 step 中首个 kernel 之后设备什么都没做的时间占比。",
            ),
            source="the step without computing, exposed communication, exposed copies and preparing",
            share=True,
        ),
        Metric(
            name="utilization.host",
            title=Text("host utilization", "Host 利用率"),
            unit="1",
            better="higher",
            kind="noisy",
            step=2,
            explanation=Text(
                "CPU time of the process over wall time and granted CPUs: what a CPU device can say about utilization.",
                "进程 CPU 时间除以墙钟时间与可用 CPU 数之积：这是 CPU 作为设备时能给出的利用率。",
            ),
            source="process CPU time / (wall time x threads)",
            share=True,
        ),
        Metric(
            name="utilization.reported",
            title=Text("utilization the driver reports", "驱动上报的利用率"),
            unit="1",
            better="higher",
            kind="noisy",
            step=2,
            explanation=Text(
                "What npu-smi or nvidia-smi says while calls are made and no profiler runs. It counts time in "
                "which any core worked, not how well it was used.",
                "不开 profiler、持续调用时 npu-smi 或 nvidia-smi 给出的值。只要有任一核在工作就计入，并不说明"
                "用得好不好。",
            ),
            source="median of readings over five seconds of calls",
            share=True,
        ),
        Metric(
            name="utilization.gap",
            title=Text("device idle per call", "每次调用的设备空闲时间"),
            unit="s",
            better="lower",
            kind="noisy",
            step=2,
            explanation=Text(
                "Seconds per call in which no kernel ran on the device.", "每次调用中设备上没有 kernel 运行的秒数。"
            ),
            source="complement of the union of kernel intervals",
        ),
        Metric(
            name="counters.syncs",
            title=Text("synchronisations per call", "每次调用的同步次数"),
            unit="1",
            better="lower",
            kind="exact",
            step=2,
            explanation=Text(
                "How often one call makes the host wait for the device: a value handed to Python (item(), bool(),"
                " tolist()), a result whose shape depends on the data (nonzero, unique, a boolean mask), a copy "
                "to the host, or an explicit synchronize. Each empties the device's queue. A CPU has no queue to "
                "wait for, so there it counts what would wait on a device.",
                "一次调用让 Host 等待设备的次数：把值交给 Python（item()、bool()、tolist()），结果 shape 依赖"
                "数据（nonzero、unique、布尔掩码），拷回 Host，或显式 synchronize。每次都会清空设备队列。CPU "
                "没有队列可等，这里统计的是换到设备上会发生等待的操作。",
            ),
            source="torch's own tags data_dependent_output and dynamic_output_shape, over " + DISPATCH,
        ),
    ),
    limits=(
        Limit("utilization.busy.warning", 0.8, CHECKLIST),
        Limit("utilization.busy.severe", 0.5, CHECKLIST),
        Limit("utilization.host.info", 0.8, AS_UTILIZATION),
    ),
    rules=(
        Rule(
            "utilization.busy",
            Text("the device waits for the host for much of each call", "每次调用中设备有很大一部分时间在等 Host"),
        ),
        Rule(
            "utilization.communication",
            Text(
                "collectives that no computing hides take more of each step than anything else but computing",
                "除计算外，每个 step 中占时最多的是未被计算掩盖的集合通信",
            ),
        ),
        Rule(
            "utilization.copies",
            Text(
                "copies that no kernel hides take more of each step than anything else but computing",
                "除计算外，每个 step 中占时最多的是未被 kernel 掩盖的拷贝",
            ),
        ),
        Rule(
            "utilization.preparing",
            Text(
                "the device waits for the host before the first kernel of each step",
                "每个 step 的首个 kernel 之前，设备在等 Host",
            ),
        ),
        Rule(
            "utilization.host",
            Text(
                "the CPUs granted are not kept busy, or others use them too", "可用 CPU 没有用满，或有其他进程也在使用"
            ),
        ),
    ),
)
