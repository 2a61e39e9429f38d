"""What to do when the gate could not decide."""

from __future__ import annotations

WORDS = {
    "To do:": "处理：",
    "let what the rule is about be measured; the reason says what is missing. Without a number nothing shows that the rule is "
    "kept. A rule that this device cannot show goes from {perfgate.toml} of the base branch.": (
        "请让规则所涉及的数值得到测量，原因中说明缺少什么；没有数值就不能证明满足规则。设备无法给出的规则应从 base 分支的 "
        "{perfgate.toml} 中删除。"
    ),
    "the change does not run under perfgate. Correct the error below and push again.": (
        "本次改动无法在 perfgate 下运行。请修正下面的错误后重新推送。"
    ),
    "the base itself does not run under perfgate, so there is nothing to compare with. Correct main first; until then this "
    "gate cannot decide.": "base 本身无法在 perfgate 下运行，没有可比较的对象。请先修正 main；在此之前门禁无法判定。",
    "look at the log of the measuring job, correct what stopped it, and run it again. Until there is a verdict this change "
    "counts as not measured: nothing says that it is slower, and nothing that it is not.": (
        "请查看测量作业的日志，修正使其中断的问题后重新运行。在有结论之前，本次改动视为未测量：既不能说它变慢，也不能说它没有变慢。"
    ),
    "let the workload file run on the code of both sides, or change it in a change of its own that comes first. Until then "
    "nothing says whether this change is slower.": (
        "请让 workload 文件能在两侧代码上运行，或先用单独的改动修改它。在此之前无从判断本次改动是否变慢。"
    ),
    "record both sides on the same device and software, with the same ranks and the same settings of the profiler (level, AI "
    "Core metrics, shapes); what differs stands above.": (
        "请在相同的设备与软件上、以相同的 rank 和相同的 profiler 设置（level、AI Core 指标、shape）录制两侧；差异列在上面。"
    ),
    "record what can be counted: the device as well as the host, on Ascend at {Level1}, and at least three steps marked with "
    "{prof.step()}. The notes say what was missing.": (
        "请录制可计数的内容：既录 Device 也录 Host，昇腾上用 {Level1}，并用 {prof.step()} 标出至少三个 step。缺少什么见提示。"
    ),
    "measure both sides on one machine with one software stack: run {perfgate check} again there. Where the new stack is "
    "meant to stay, record main on it first with {perfgate baseline record}.": (
        "请在同一台机器、同一套软件上测量两侧：在那里重新运行 {perfgate check}。若要换用新软件栈，先在其上用 "
        "{perfgate baseline record} 录制 main。"
    ),
    "a worker reports other times than passed outside it. Look for code that replaces a clock or writes to perfgate's socket; "
    "nothing it measured was believed.": (
        "worker 上报的时间与外部经过的时间不符。请检查是否有代码替换了时钟或写入了 perfgate 的套接字；其测量结果均未采信。"
    ),
    "let perfgate set CPUs, threads and priorities ({[gate] cpus}, {[measure] threads}), or set them in the workload file, "
    "which measures both sides alike.": (
        "请由 perfgate 设置 CPU、线程和优先级（{[gate] cpus}、{[measure] threads}），或在 workload 文件中设置，使两侧一致。"
    ),
    "let a call wait for the work it starts, and end threads and processes it does not need; a side that works all the time "
    "slows the other.": "请让调用等待其启动的工作完成，并结束不需要的线程和进程；一直在工作的一侧会拖慢另一侧。",
    "look for what makes calls faster for seconds (lazy compilation, growing caches) and do it when the model is built.": (
        "请找出让调用在数秒内逐渐变快的原因（延迟编译、不断增长的缓存），并在构建模型时完成。"
    ),
    "keep the device to this job (a lock, a queue, one job per card) and run it again.": (
        "请让设备由本作业独占（加锁、排队、一卡一作业），然后重新运行。"
    ),
    "let the device cool down or fix its clock, then run the job again; {perfgate doctor --fitness} shows its state.": (
        "请让设备降温或固定其频率，然后重新运行；{perfgate doctor --fitness} 可查看其状态。"
    ),
    "and {more_missing}, see `decision.json`": "{more_missing}，见 `decision.json`",
    "run the measuring job again and look at its log: what is missing may be what got worse, so nothing counts without it.": (
        "请重新运行测量作业并查看其日志：缺少的部分可能正是变差的部分，没有它任何结果都不作数。"
    ),
    "something else was at work on this machine. Measure again when it is idle.": (
        "这台机器上有其他负载。请在空闲时重新测量。"
    ),
    "something else was at work on this machine. Run {perfgate check --append} when it is idle: its pairs add to these.": (
        "这台机器上有其他负载。请在空闲时运行 {perfgate check --append}：新测的对会加入现有结果。"
    ),
    "the time budget was spent before base and head were compared. Give {--time-budget} more seconds, or measure fewer "
    "workloads ({--workload}).": (
        "在比较 base 与 head 之前时间预算已用完。请增大 {--time-budget} 的秒数，或减少测量的 workload（{--workload}）。"
    ),
    "neither counters nor pairs of base and head gave numbers. The checklist and the run folder's log say what was missing; "
    "correct that and run the job again.": (
        "base 与 head 的计数和成对测量都没有给出数值。检查清单和运行目录的日志说明缺少什么；请修正后重新运行。"
    ),
    "see whether the change of the workload file is meant. Nothing fails on that alone, but once it is merged, what it no "
    "longer measures is not gated.": (
        "请确认 workload 文件的改动是否符合本意。仅凭这一点不会判为不通过，但合并后，它不再测量的内容就不再受门禁约束。"
    ),
    "measure on a quieter machine: here about {needed} would decide, and this job measured {pairs}. "
    "{perfgate doctor --fitness} shows what disturbs it.": (
        "请在更空闲的机器上测量：此处约需 {needed}才能判定，而本作业测了 {pairs} 对。"
        "{perfgate doctor --fitness} 可查看受何干扰。"
    ),
    "about {needed} would decide, this job measured {pairs}. Raise {budget} under {[gate]} in {perfgate.toml}.": (
        "约需 {needed}才能判定，本作业测了 {pairs} 对。请提高 {perfgate.toml} 中 {[gate]} 的 {budget}。"
    ),
    "about {needed} would decide, this job measured {pairs}. Run {perfgate check --append}: its pairs add to these; or raise "
    "{budget} under {[gate]} in {perfgate.toml}.": (
        "约需 {needed}才能判定，本作业测了 {pairs} 对。请运行 {perfgate check --append}：新测的对会加入现有结果；或提高 "
        "{perfgate.toml} 中 {[gate]} 的 {budget}。"
    ),
    "run the job again on a quieter machine; the noise was larger than the limit.": (
        "请在更空闲的机器上重新运行；噪声大于限值。"
    ),
    "A budget or SLA is not shown to be kept: the base breaks it too, or too little was measured to tell.": (
        "未能证明满足预算或 SLA：base 同样违反，或测量太少无法判断。"
    ),
}
