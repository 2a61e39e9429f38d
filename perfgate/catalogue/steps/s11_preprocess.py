"""Step 11: preprocessing."""

from __future__ import annotations

from perfgate.catalogue.card import Limit, Metric, Rule, StepCard, Text
from perfgate.catalogue.sources import AS_TRANSFERS, TRACE

_INTERLEAVED = Text("interleaved blocks in one process, signed-rank interval", "同一进程内交错测量，符号秩区间")

CARD = StepCard(
    number=11,
    slug="preprocess",
    title=Text("Preprocessing", "预处理"),
    question=Text(
        "How long does preprocessing take, and how much of it does the model wait for?",
        "预处理耗时多少，其中有多少需要模型等待？",
    ),
    how=Text(
        "Raw batches are made beforehand. Each stage is timed on the host, one batch after another. Then a pipeline in which a "
        "thread preprocesses the next batch while the model works on this one takes turns with the model fed from batches "
        "that are ready: what the pipeline takes longer is exposed. Where the workload gives preprocess_on_device, raw "
        "batches that are uploaded and preprocessed there take turns with the host's way, and both outputs are compared. The "
        "gate times the preprocessing of base and head in its pairs too.",
        "原始 batch 预先生成。逐批在主机上对每个阶段计时；随后让「线程预处理下一批、模型同时计算当前批」的流水线与「直接"
        "喂入已就绪 batch 的模型」交替运行，流水线多出的时间即为暴露的预处理时间。若 workload 提供 preprocess_on_device，"
        "则把「上传原始 batch 并在设备上预处理」与主机方式交替测量，并比较两者的模型输出。门禁在成对测量中同样对比 base 与 "
        "head 的预处理耗时。",
    ),
    remedy=Text(
        "Start with the slowest stage. Decode and resize in workers that run ahead (a DataLoader with num_workers and "
        "prefetch_factor), replace Python loops over items by one operation on the batch, hand over uint8 and convert on the "
        "device, or do resize and normalisation on the device (preprocess_on_device). AIPP does so inside an .om model; it "
        "does not exist for a model that PyTorch runs.",
        "从最慢的阶段入手。把解码与缩放放到提前运行的进程中（DataLoader 的 num_workers 与 prefetch_factor），用对整个 batch "
        "的单次运算代替逐样本的 Python 循环，以 uint8 传输并在设备上转换类型，或把缩放与归一化移到设备上"
        "（preprocess_on_device）。AIPP 仅在 .om 模型中可用，由 PyTorch 执行的模型没有 AIPP。",
    ),
    cost=Text("quick about 3 s, full about 20 s", "快速模式约 3 秒，完整模式约 20 秒"),
    devices={
        "npu": Text(
            "All of it. In a recording: the spans in which the host waits for the DataLoader, the Preparing column of "
            "step_trace_time.csv (from the start of a step to its first task on the device), and the nodes of "
            "data_preprocess.csv, which run on the AI CPU.",
            "全部可测。已有采集数据中：主机等待 DataLoader 的区间、step_trace_time.csv 的 Preparing 列（从 step 开始到首个"
            "设备任务）、data_preprocess.csv 中由 AI CPU 执行的节点。",
        ),
        "cuda": Text(
            "All of it. In a recording: the spans in which the host waits for the DataLoader.",
            "全部可测。已有采集数据中：主机等待 DataLoader 的区间。",
        ),
        "cpu": Text(
            "All of it, but preprocessing and model share the cores, so that hiding one behind the other gains less.",
            "全部可测；但预处理与模型共用 CPU 核，相互掩盖的收益较小。",
        ),
    },
    metrics=(
        Metric(
            name="preprocess.low",
            title=Text("preprocessing", "预处理耗时"),
            unit="s",
            better="lower",
            kind="noisy",
            step=11,
            explanation=Text(
                "The time of preprocessing one batch when nothing disturbs it. The gate measures it in the same pairs as the "
                "call, on raw batches made beforehand, compares it like the fast path of the call, and names the stage that "
                "got slower with the line on which its function starts.",
                "无干扰时预处理一个 batch 的时间。门禁在与调用相同的成对测量中使用预先生成的原始 batch 测量它，以与快速路径"
                "时延相同的方法比较，并指出变慢的阶段及其函数所在行。",
            ),
            source=Text(
                "mean of the difference of log P10 and the median over quads of the difference of log minimum",
                "P10 对数差与各 quad 最小值对数差中位数的平均",
            ),
        ),
        Metric(
            name="preprocess.time",
            title=Text("stage of preprocessing", "预处理阶段耗时"),
            unit="s",
            better="lower",
            kind="noisy",
            step=11,
            explanation=Text("The typical time of one stage on one batch.", "一个阶段处理一个 batch 的典型时间。"),
            source=Text("median over batches", "各 batch 的中位数"),
        ),
        Metric(
            name="preprocess.share",
            title=Text("share of preprocessing", "预处理占比"),
            unit="1",
            better="lower",
            kind="noisy",
            step=11,
            explanation=Text(
                "How much of a batch's way through preprocessing and model, one after the other, is preprocessing.",
                "一个 batch 依次经过预处理与模型时，预处理所占的比例。",
            ),
            source=Text("T_preprocess / (T_preprocess + T_model)", "T_预处理 / (T_预处理 + T_模型)"),
            share=True,
        ),
        Metric(
            name="preprocess.exposed_share",
            title=Text("exposed preprocessing", "暴露的预处理占比"),
            unit="1",
            better="lower",
            kind="noisy",
            step=11,
            explanation=Text(
                "How much of the pipeline's time the model waits for preprocessing although a thread works one batch ahead. "
                "Stages in pure Python hold the interpreter's lock and delay the model; a DataLoader's processes would not.",
                "即使有线程提前处理下一批，流水线中模型仍等待预处理的时间占比。纯 Python 阶段会占用解释器锁而拖慢模型，"
                "DataLoader 的多进程则不会。",
            ),
            source=Text("(T_pipeline - T_model) / T_pipeline, in turns", "(T_流水线 - T_模型) / T_流水线，交替测量"),
            share=True,
        ),
        Metric(
            name="preprocess.device_speedup",
            title=Text("preprocessing on the device", "设备侧预处理加速比"),
            unit="1",
            better="higher",
            kind="noisy",
            step=11,
            explanation=Text(
                "How many times as fast a batch is through upload, preprocessing and model when the device preprocesses it; "
                "measured without overlap.",
                "由设备做预处理时，一个 batch 完成上传、预处理与模型计算的加速比；不含流水线重叠。",
            ),
            source=_INTERLEAVED,
        ),
        Metric(
            name="preprocess.loading_share",
            title=Text("waiting for the DataLoader", "等待 DataLoader 占比"),
            unit="1",
            better="lower",
            kind="noisy",
            step=11,
            explanation=Text(
                "How much of the recorded steps the host spent in the DataLoader's next batch.",
                "采集到的 step 中，主机取 DataLoader 下一批所占的时间比例。",
            ),
            source=Text("union of the spans enumerate(DataLoader)#…__next__ / length of the steps", TRACE.zh),
            share=True,
        ),
        Metric(
            name="preprocess.preparing_share",
            title=Text("device idle before the first task", "首个任务前设备空闲占比"),
            unit="1",
            better="lower",
            kind="noisy",
            step=11,
            explanation=Text(
                "How much of a step passed before the device had its first task: loading, preprocessing, and the first launch.",
                "一个 step 中设备得到首个任务之前所占的比例：取数、预处理与首次下发。",
            ),
            source=Text(
                "Preparing / (Preparing + Computing + Communication(Not Overlapped) + Free) of step_trace_time.csv",
                "step_trace_time.csv 中 Preparing / (Preparing + Computing + Communication(Not Overlapped) + Free)",
            ),
            share=True,
        ),
        Metric(
            name="preprocess.aicpu_time",
            title=Text("preprocessing on the AI CPU", "AI CPU 预处理耗时"),
            unit="s",
            better="lower",
            kind="noisy",
            step=11,
            explanation=Text(
                "Time of the nodes that the device's own CPU ran, over the recording.",
                "整个采集过程中由设备 AI CPU 执行的节点耗时。",
            ),
            source=Text("data_preprocess.csv, sum of Total_time(us)", "data_preprocess.csv 的 Total_time(us) 之和"),
        ),
    ),
    limits=(
        Limit("preprocess.exposed_share.warning", 0.05, AS_TRANSFERS),
        Limit("preprocess.exposed_share.severe", 0.2, AS_TRANSFERS),
        Limit("preprocess.loading_share.warning", 0.05, AS_TRANSFERS),
        Limit("preprocess.loading_share.severe", 0.2, AS_TRANSFERS),
        Limit(
            "preprocess.agreement",
            0.01,
            Text(
                "relative to the largest output; resize and colour conversion differ by rounding between libraries",
                "相对最大输出；不同库的缩放与色彩转换存在舍入差异",
            ),
        ),
    ),
    rules=(
        Rule(
            "preprocess.exposed_share",
            Text(
                "the model waits for preprocessing; {stage} takes most of it",
                "模型在等待预处理，其中阶段 {stage} 耗时最多",
            ),
        ),
        Rule(
            "preprocess.contention",
            Text(
                "a thread that preprocesses slows the model by more than preprocessing takes: both want the same cores; give "
                "preprocessing cores of its own, or the model fewer threads",
                "预处理线程对模型的拖慢超过预处理本身的耗时：两者争用同一批 CPU 核；请为预处理分配独立的核，或减少模型线程数",
            ),
        ),
        Rule(
            "preprocess.loading_share",
            Text("the host waits for the DataLoader's next batch", "主机在等待 DataLoader 的下一批数据"),
        ),
        Rule(
            "preprocess.on_device",
            Text(
                "preprocessing on the device is faster and gives the same output: use preprocess_on_device",
                "设备侧预处理更快且输出一致，建议采用 preprocess_on_device",
            ),
        ),
        Rule(
            "preprocess.device_differs",
            Text(
                "preprocess_on_device leads to another output than preprocess, so its speed is not worth a word",
                "preprocess_on_device 与 preprocess 的输出不一致，其速度没有意义",
            ),
        ),
    ),
)
