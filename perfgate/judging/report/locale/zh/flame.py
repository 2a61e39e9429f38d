"""The page of the flame graph, and what its script says."""

from __future__ import annotations

WORDS = {
    "Flame graph of base and head": "base 与 head 的火焰图",
    "Recording": "录制数据",
    "Track": "轨道",
    "Request": "请求",
    "Width": "宽度",
    "mean of base and head": "base 与 head 的平均",
    "Colour by difference": "按差异着色",
    "Search": "搜索",
    "name, file, shape": "名称、文件、shape",
    "Regular expression": "正则表达式",
    "Reset zoom": "复位缩放",
    "Frames around the one shown": "当前栈帧的上层栈帧",
    "Flame graph. Arrow keys move between frames, Enter zooms in, Backspace zooms out, Escape resets, slash searches.": (
        "火焰图。方向键在栈帧间移动，Enter 放大，Backspace 缩小，Escape 复位，斜杠键搜索。"
    ),
    "Wider is longer; what lies below a frame ran inside it, or was launched by it. Click or press Enter to zoom.": (
        "越宽耗时越长；栈帧下方的内容在其中运行，或由其下发。单击或按 Enter 放大。"
    ),
    " {folded} too small to keep count as time of those around them.": "{folded}过小，未单独保留，其耗时计入上层栈帧。",
    "The interactive graph needs JavaScript and a browser of 2023 or later; the tables below need neither.": (
        "交互式火焰图需要 JavaScript 和 2023 年及以后的浏览器；下方的表格则不需要。"
    ),
    "{label}: most time of their own": "{label}：自身耗时最多的栈帧",
    "frame": "栈帧",
    "kind": "类型",
    "where": "位置",
    "difference": "差异",
    "runs, base": "次数 base",
    "runs, head": "次数 head",
    "self": "自身",
    "with all in it": "含其内部",
    "runs": "次数",
    "Time in {unit}, by frame, most first": "{unit}的耗时，按栈帧统计，多者在前",
    "; {more} not listed": "；{more}未列出",
    # kinds of frames, and what one is counted in
    "thread": "线程",
    "stream": "流",
    "Python function": "Python 函数",
    "annotation": "标注",
    "runtime call": "运行时调用",
    "kernel": "kernel",
    "copy": "拷贝",
    "collective": "集合通信",
    "other": "其他",
    "one call": "一次调用",
    "one profiler step": "一个 profiler step",
    "the whole recording": "整份录制数据",
    # the script
    "all": "全部",
    "all host threads": "全部 Host 线程",
    "all device streams": "全部设备流",
    "This is no regular expression.": "不是有效的正则表达式。",
    "{count} frames match: ": "{count} 个栈帧匹配：",
    "{time}, {share} of the time": "{time}，占总时间的 {share}",
    "total": "总计",
    "{shape} and {count} other shapes": "{shape} 及另外 {count} 种 shape",
    "Red: head takes longer. Blue: head takes less. Grey: as before. Numbers are head minus base, in {unit}.": (
        "红色：head 耗时更长。蓝色：head 耗时更短。灰色：不变。数值为{unit}中 head 减 base。"
    ),
    " The times are those of the pairs, which took turns, spread over the stacks that some of them traced.": (
        "耗时取自轮流运行的配对，并按部分配对录制的调用栈分摊。"
    ),
    " The recordings were made apart, under a profiler: a difference that all frames share is the machine's.": (
        "两份数据在 profiler 下分别录制：所有栈帧共有的差异来自机器。"
    ),
    "Red: head runs it more often. Blue: head runs it less often. Grey: as often. Numbers are runs in {unit}.": (
        "红色：head 运行次数更多。蓝色：head 运行次数更少。灰色：次数相同。数值为{unit}中的运行次数。"
    ),
    "{count} runs": "{count} 次",
    " over {pairs}": "，共 {pairs}",
    "The pairs did not time this call.": "配对没有测得这次调用的耗时。",
    "The profiled calls point the other way than the pairs.": "profile 的调用与配对的方向相反。",
    "The profiled calls differ by an amount that the pairs exclude.": "profile 的调用之差不在配对给出的区间内。",
    "So the frames are coloured by how often they ran, and no difference of times is shown.": (
        "因此栈帧按运行次数着色，不显示耗时差异。"
    ),
    "more runs": "增加的次数",
    "Time in {unit}; a colour for each kind: Python function, operator, annotation, runtime call, kernel, copy, collective.": (
        "{unit}的耗时；每种类型一种颜色：Python 函数、算子、标注、运行时调用、kernel、拷贝、集合通信。"
    ),
}
