"""Why a call takes longer: how the parts add up, what became of an operator, and what the call is bound by."""

from __future__ import annotations

WORDS = {
    # the account
    "a call of {place} takes {measured} longer ({metric}): {more} were added and {saved} saved": (
        "{place} 的一次调用慢了 {measured}（{metric}）：增加 {more}，节省 {saved}"
    ),
    "a call of {place} takes {measured} longer ({metric}): {more} were added": (
        "{place} 的一次调用慢了 {measured}（{metric}）：增加 {more}"
    ),
    ", {over} above what was measured, because the profiler slows operators": (
        "，比实测多 {over}，因为 profiler 会拖慢算子"
    ),
    ", which explains {share} and leaves {left} unexplained, in what changed too little to tell from noise": (
        "，可解释 {share}，尚有 {left} 未解释（变化过小，无法与噪声区分）"
    ),
    ", which explains {share}": "，可解释 {share}",
    "; it is bound by {bound}, as the base is": "；瓶颈在{bound}，base 亦然",
    "; it is bound by {bound}, the base by {base_bound}": "；瓶颈在{bound}，base 的瓶颈在{base_bound}",
    "computing": "计算",
    "memory": "访存",
    "the host (scheduling)": "Host 下发（调度）",
    "synchronisation": "同步",
    "transfer": "数据搬运",
    "communication": "通信",
    # causes
    "between the operators, of which there are more, in {places}": "算子之间的 Host 耗时（算子数增多），位于 {places}",
    "{op} outside operators, in {places}": "{op}（算子之外的 Host 代码），位于 {places}",
    "outside operators, in {places}": "算子之外的 Host 耗时，位于 {places}",
    "waiting for {op} in {places}": "等待 {op}，位于 {places}",
    "waiting for {op} takes {time} longer": "等待 {op} 多用 {time}",
    "{op} on {head_input} instead of {base_input} takes {time} longer": (
        "{op} 的输入由 {base_input} 变为 {head_input}，多用 {time}"
    ),
    " in full precision": "（以全精度计算）",
    ", whose result is kept": "，其结果一直未释放",
    ", which a repeated input saves": "，输入重复时则省去",
    "{more} graph break": "图中断{more} 次",
    "{more} graph breaks": "图中断{more} 次",
    "{more} recompilation": "重新编译{more} 次",
    "{more} recompilations": "重新编译{more} 次",
    "graph breaks in {places}": "图中断，位于 {places}",
    "recompilations in {places}": "重新编译，位于 {places}",
    "graph break: ": "图中断：",
    "recompilation: ": "重新编译：",
    ": {cause_in_short}": "：{cause_in_short}",
    ": {op}": "：{op}",
    ": {more} ({base} → {head})": "：{more} 次（{base} → {head}）",
    ": on {head_input} instead of {base_input}": "：输入由 {base_input} 变为 {head_input}",
    ", {time} more": "，多耗时 {time}",
}
