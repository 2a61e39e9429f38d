"""What to try: the words around the advice itself, whose Chinese stands in the catalogue."""

from __future__ import annotations

WORDS = {
    "a call": "一次调用",
    "an item": "每条输入",
    "an answer under traffic": "有流量时的应答",
    "an input on its way to the output": "从原始输入到输出",
    "step {step}": "第 {step} 步",
    ", says {source}": "（{source}）",
    "; measured: {of} {speedup} times as fast ({low} to {high})": "；实测：{of}快至 {speedup} 倍（{low} 到 {high}）",
    "; measured: {of} {speedup} times as fast": "；实测：{of}快至 {speedup} 倍",
    "; estimate: {of} at most {speedup} times as fast, were these {share} gone": (
        "；估算：若去掉这 {share}，{of}至多快至 {speedup} 倍"
    ),
    "; write {code}": "；写法：{code}",
    "; see {command}": "；验证：{command}",
    "… {more}: perfgate advise {folder}": "… {more}：perfgate advise {folder}",
    "Nothing to try: no step noticed anything that there is advice on.": "没有建议：各步骤均未发现有对应建议的问题。",
    "What else may be tried": "其他可尝试的改进",
}
