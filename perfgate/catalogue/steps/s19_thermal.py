"""Step 19: temperature, clock and power."""

from __future__ import annotations

from perfgate.catalogue.card import Limit, Metric, Rule, StepCard, Text
from perfgate.catalogue.sources import own

_SENSOR = (
    "npu-smi -t common and -t usages, nvidia-smi --query-gpu, or /sys of Linux, once a second from a process of its own"
)

CARD = StepCard(
    number=19,
    slug="thermal",
    title=Text("Temperature, clock and power", "温度、频率与功耗"),
    question=Text(
        "Does the device keep its speed under sustained load, how warm does it get, and what does an item cost in energy?",
        "持续负载下设备能否保持速度，温度多高，每个样本消耗多少能量？",
    ),
    how=Text(
        "A soak: calls without a pause, in slices of a quarter of a second, and after each slice a fixed matrix product, the "
        "canary. Derating is 1 - throughput at the end / throughput at the begin, with its interval. Where the canary keeps "
        "its speed, it is not the device that slows down. On a CPU throughput counts CPU time, so that other processes are no "
        "derating; where they take many of its turns, it is not judged. A process of its own, without torch, reads the "
        "sensors once a second. Quick mode soaks for 6 s, which shows a clock that is too low at once, but hardly heat; the "
        "full mode soaks for 35 s.",
        "烤机测试：不间断地调用，每 0.25 s 为一段，每段之后执行一次固定的矩阵乘（canary）。降速 = 1 − 末段吞吐 / 首段吞吐，"
        "并给出置信区间；若 canary 速度不变，则变慢的不是设备。CPU 上按 CPU 时间计吞吐，其他进程的占用不算降速；"
        "占用过多时不作判断。传感器由一个不加载 torch 的独立进程每秒读取一次。"
        "quick 模式只烤 6 s，能立即看出频率偏低，但难以看出发热；完整模式烤 35 s。",
    ),
    remedy=Text(
        "Cool the device, raise its power limit, or lower its clock to one it can hold, and measure again: until then no time "
        "is comparable. Where only the workload slows down, look for state that grows from call to call (step 17).",
        "改善散热、提高功耗上限，或把频率降到可以稳定保持的值，然后重新测量；在此之前各项时延都不可比。若只有负载变慢，请检查随调用增长的"
        "状态（见第 17 步）。",
    ),
    cost=Text("8 s quick, 40 s in full, of the first shape only.", "只测第一个 shape：quick 模式 8 s，完整模式 40 s。"),
    devices={
        "npu": Text(
            "npu-smi: Temperature(C), NPU Real-time Power(W), Aicore curFreq and Freq. A 310P tells no power. Of a recording: "
            "the lowest and the highest clock of the AI Core.",
            "npu-smi：Temperature(C)、NPU Real-time Power(W)、Aicore curFreq 与 Freq。310P 不提供功耗。对录制数据：AI Core 的"
            "最低与最高频率。",
        ),
        "cuda": Text(
            "nvidia-smi: temperature, power.draw, clocks.sm, and the reasons why it slowed down.",
            "nvidia-smi：温度、power.draw、clocks.sm 以及降频原因。",
        ),
        "cpu": Text(
            "Thermal zones, cpufreq and the energy counters of RAPL, where the kernel shows them; in a virtual machine only "
            "the soak and the canary.",
            "内核可见时读取 thermal zone、cpufreq 与 RAPL 能耗计数；虚拟机中只有烤机与 canary。",
        ),
    },
    metrics=(
        Metric(
            name="thermal.derating",
            title=Text("throughput lost under sustained load", "持续负载下的吞吐下降"),
            unit="1",
            better="lower",
            kind="noisy",
            step=19,
            explanation=Text(
                "How much lower the throughput is at the end of the soak than at its begin; of the workload, and of the "
                "canary, a fixed matrix product between its calls.",
                "烤机末段相对首段的吞吐下降；分别针对负载本身和夹在调用之间的固定矩阵乘（canary）。",
            ),
            source="1 - throughput(last slices) / throughput(first slices), Hodges-Lehmann shift of the logarithms",
            share=True,
        ),
        Metric(
            name="thermal.throttled",
            title=Text("time below the rated clock", "低于额定频率的时间占比"),
            unit="1",
            better="lower",
            kind="noisy",
            step=19,
            explanation=Text(
                "Share of the readings in which the device worked and its clock was below 97 % of the rated one, or the driver "
                "said that it slowed it down.",
                "设备工作期间，频率低于额定值 97 % 或驱动报告已降频的采样占比。",
            ),
            source=_SENSOR,
            share=True,
        ),
        Metric(
            name="thermal.clock",
            title=Text("clock over the rated one", "频率与额定频率之比"),
            unit="1",
            better="higher",
            kind="noisy",
            step=19,
            explanation=Text(
                "Median clock of the device while it worked over its rated one; of a recording the lowest over the highest.",
                "设备工作期间频率的中位数与额定频率之比；对录制数据为最低与最高频率之比。",
            ),
            source=_SENSOR,
            share=True,
        ),
        Metric(
            name="thermal.temperature",
            title=Text("highest temperature", "最高温度"),
            unit="Cel",
            better="lower",
            kind="noisy",
            step=19,
            explanation=Text("The highest temperature read during the soak.", "烤机期间读到的最高温度。"),
            source=_SENSOR,
        ),
        Metric(
            name="thermal.power",
            title=Text("mean power", "平均功耗"),
            unit="W",
            better="lower",
            kind="noisy",
            step=19,
            explanation=Text(
                "Power over the soak, what the device draws at rest included.", "烤机期间的平均功耗，含空闲功耗。"
            ),
            source=_SENSOR,
        ),
        Metric(
            name="thermal.energy",
            title=Text("energy per item", "每个样本的能耗"),
            unit="J",
            better="lower",
            kind="noisy",
            step=19,
            explanation=Text(
                "Energy of the soak over the items that went through, what the device draws at rest included.",
                "烤机期间的总能耗除以处理的样本数，含空闲功耗。",
            ),
            source="integral of power over the soak / items; " + _SENSOR,
        ),
    ),
    limits=(
        Limit(
            "thermal.derating.warning",
            0.03,
            own("throughput of the end over that of the beginning", "结束时与开始时吞吐之比"),
        ),
        Limit(
            "thermal.derating.severe",
            0.1,
            own("throughput of the end over that of the beginning", "结束时与开始时吞吐之比"),
        ),
        Limit("thermal.drift.warning", 0.03, own("as for the loss of throughput", "与吞吐下降的阈值相同")),
        Limit("thermal.drift.severe", 0.1, own("as for the loss of throughput", "与吞吐下降的阈值相同")),
        Limit(
            "thermal.shared.info",
            0.1,
            Text(
                "share of the time in which the process could have run: perfgate's own mark",
                "进程本可运行的时间中所占比例：perfgate 自定阈值",
            ),
        ),
        Limit(
            "thermal.throttled.warning",
            0.0,
            own("a device that slows itself down measures something else", "自行降频的设备测得的不是原本的性能"),
        ),
        Limit(
            "thermal.clock.warning",
            0.95,
            Text(
                "msprof-analyze calls a drop of the AI Core's frequency by 5 % an abnormal one",
                "msprof-analyze 将 AI Core 频率下降 5 % 判为异常",
            ),
        ),
    ),
    rules=(
        Rule(
            "thermal.derating",
            Text(
                "the device slows down under sustained load: it is too warm, or at its power limit",
                "设备在持续负载下降速：温度过高或达到功耗上限",
            ),
        ),
        Rule(
            "thermal.drift",
            Text(
                "calls slow down while a fixed matrix product between them keeps its speed: something grows from call to call",
                "调用逐渐变慢，而夹在其间的固定矩阵乘速度不变：有状态随调用增长",
            ),
        ),
        Rule(
            "thermal.shared",
            Text(
                "others used these CPUs during the soak: what speed was lost is not the device's alone, and is not judged",
                "烤机期间其他进程占用了这些 CPU：速度下降不只来自设备，因此不作判断",
            ),
        ),
        Rule(
            "thermal.throttled",
            Text(
                "the device works below its rated clock: times of this machine prove little",
                "设备工作时低于额定频率：本机测得的时延说服力有限",
            ),
        ),
        Rule(
            "thermal.clock",
            Text(
                "the clock of the AI Core fell while the profiler recorded",
                "profiler 录制期间 AI Core 频率下降",
            ),
        ),
    ),
)
