"""What to try about what a change brought: a counter that rose, an operator that came, runs on other inputs or got slower."""

from __future__ import annotations

from perfgate.catalogue.advice.advice import Advice
from perfgate.catalogue.card import Text

CHANGES: tuple[Advice, ...] = (
    Advice(
        "unfused-attention",
        Text(
            "attention runs as separate matmul and softmax now; keep scaled_dot_product_attention, which transformers calls "
            "sdpa",
            "注意力现在拆成了单独的 matmul 与 softmax；请保留 scaled_dot_product_attention（transformers 中称 sdpa）",
        ),
        code="torch.nn.functional.scaled_dot_product_attention(q, k, v)",
    ),
    Advice(
        "small-ops",
        Text(
            "{op} runs {head} times a call instead of {base}; do it once on the whole tensor (stack, a broadcast, or one "
            "fused op) instead of in a loop",
            "{op} 每次调用执行 {head} 次，原为 {base} 次；请对整个张量执行一次（stack、广播或一个融合算子），不要放在循环里",
        ),
    ),
    Advice(
        "layout-copy",
        Text(
            "a copy changes the memory layout on every call; keep one layout through the block, or convert once outside the "
            "call",
            "每次调用都有改变内存布局的拷贝；请在整个模块内保持一种布局，或在调用之外转换一次",
        ),
    ),
    Advice(
        "dtype-round-trip",
        Text(
            "tensors are converted between dtypes or devices on every call; keep one dtype through the model, or convert once "
            "when it is built",
            "每次调用都在转换张量的 dtype 或设备；请在整个模型内保持一种 dtype，或在构建模型时转换一次",
        ),
    ),
    Advice(
        "format-conversion",
        Text(
            "tensors change between formats (NCHW, NC1HWC0, FRACTAL_NZ) in every call; cast weights once when the model is "
            "built, and keep neighbouring operators in one format",
            "每次调用都有张量格式转换（NCHW、NC1HWC0、FRACTAL_NZ）；请在构建模型时一次性转换权重，并让相邻算子使用同一格式",
        ),
        code="weight.data = torch_npu.npu_format_cast(weight.data, 29)  # FRACTAL_NZ",
    ),
    Advice(
        "host-fallback",
        Text(
            "{op} has no kernel on this device, so its inputs go to the host and its result back; use an operator that has "
            "one, or move it out of the call",
            "本设备没有 {op} 的实现，输入送到 Host、结果再送回；请换用有实现的算子，或移出调用",
        ),
    ),
    Advice(
        "peak-memory",
        Text(
            "one call holds more memory at once; free or reuse intermediate tensors (in-place ops, del)",
            "一次调用同时占用的内存变多；请释放或复用中间张量（原地算子、del）",
        ),
    ),
    Advice(
        "dropped-precision",
        Text(
            "operators compute in 32-bit floating point again; put the call back under autocast, or keep model and inputs in "
            "one lower precision",
            "算子又以 32 位浮点计算；请把调用放回 autocast 之下，或让模型与输入统一为较低精度",
        ),
    ),
    Advice(
        "value-for-python",
        Text(
            "{op} makes Python wait for a value of the device; keep it a tensor (torch.where, masks), or fetch it once after "
            "the call",
            "{op} 让 Python 等待设备上的数值；请保留为张量（torch.where、掩码），或在调用之后取一次",
        ),
    ),
    Advice(
        "copy-that-waits",
        Text(
            "the host waits for a copy ({op}); to the device, copy from pinned memory with non_blocking=True; a result for the "
            "host, fetch once after the call",
            "Host 在等待拷贝（{op}）；往设备拷贝时请使用锁页内存并加 non_blocking=True；取回结果请在调用之后一次完成",
        ),
        code="loader = DataLoader(data, pin_memory=True); batch = batch.to(device, non_blocking=True)",
    ),
    Advice(
        "graph-break",
        Text(
            "the compiler gives up the graph where it did not before; take out of the compiled part what it names as the "
            "reason: a value for Python, a print, a call it does not know",
            "编译器在原本不断图的位置断图；请把它给出的原因移出被编译的部分：取回 Python 的数值、print、不认识的调用",
        ),
        code='TORCH_LOGS="graph_breaks" perfgate run --steps 9',
        steps=(9,),
    ),
    Advice(
        "recompilation",
        Text(
            "the model is compiled again where it was not before; mark the size that changes as dynamic, or pad inputs to a "
            "few sizes",
            "模型在原本不重编译的情况下重新编译；请把变化的维度标为动态，或把输入补齐到少数几种大小",
        ),
        code="torch._dynamo.mark_dynamic(x, 0)",
        steps=(9,),
    ),
    Advice(
        "copies-to-device",
        Text(
            "more copies between host and device in every call; build constants on the device once, and bring inputs over "
            "from pinned memory without blocking",
            "每次调用有更多 Host 与 Device 之间的拷贝；请在设备上一次性构建常量，输入用锁页内存非阻塞地拷入",
        ),
        code="x = x.pin_memory().to(device, non_blocking=True)",
        steps=(3,),
    ),
    Advice(
        "collectives",
        Text(
            "{op} runs {head} times a call instead of {base}; every collective waits for the slowest rank: join those on small "
            "tensors, and leave out what is reduced already",
            "{op} 每次调用执行 {head} 次，原为 {base} 次；每个集合通信都要等最慢的 rank：请合并小张量的通信，去掉重复的归约",
        ),
        steps=(16,),
    ),
    Advice(
        "memory-kept",
        Text(
            "a call leaves memory behind that it did not before: detach what is stored beyond it, and bound lists and caches",
            "调用之后留下了原来没有的内存；请对保存到调用之外的张量 detach，并给列表和缓存设上限",
        ),
        code="history.append(loss.detach())",
        steps=(17,),
    ),
    Advice(
        "same-input-cache",
        Text(
            "a cache that answers an input it has just seen makes no call on new inputs faster; drop it, or measure on inputs "
            "that differ",
            "缓存只对刚见过的输入有用，并不会加快新输入的调用；请去掉它，或用不同的输入测量",
        ),
        steps=(15,),
    ),
    Advice(
        "slower-stage",
        Text(
            "the stage {op} of the preprocessing takes longer; do it on whole batches, in a worker of the DataLoader, or once "
            "when the data are written",
            "预处理阶段 {op} 变慢；请按整个 batch 处理、放到 DataLoader 的 worker 中，或在写数据时处理一次",
        ),
        steps=(11,),
    ),
    Advice(
        "larger-inputs",
        Text(
            "{op} runs as often as before on other sizes ({before} before, now {after}); see whether the larger size is meant, "
            "and let it be a multiple of 16 or 64",
            "{op} 的次数未变而尺寸不同（原为 {before}，现为 {after}）；请确认是否需要更大的尺寸，并取 16 或 64 的倍数",
        ),
        steps=(13,),
    ),
    Advice(
        "other-dtype",
        Text(
            "{op} computes in another dtype ({before} before, now {after}); keep the dtype that it had, or put the call back "
            "under autocast",
            "{op} 的计算 dtype 变了（原为 {before}，现为 {after}）；请保持原来的 dtype，或把调用放回 autocast 之下",
        ),
        steps=(8,),
    ),
    Advice(
        "other-layout",
        Text(
            "{op} gets its inputs in another layout ({before} before, now {after}); keep model and inputs in one memory format",
            "{op} 的输入布局变了（原为 {before}，现为 {after}）；请让模型与输入使用同一种内存格式",
        ),
        code="model = model.to(memory_format=torch.channels_last)",
        steps=(14,),
    ),
    Advice(
        "slower-operator",
        Text(
            "{op} runs as often as before on the same inputs and takes longer; look at what its kernel is: its parameters, "
            "the library's version, a setting",
            "{op} 的次数与输入都没变却变慢了；请查看它实际使用的 kernel：参数、库版本、设置",
        ),
        steps=(4, 13),
    ),
    Advice(
        "slower-python",
        Text(
            "the function {op} takes longer outside operators; move what does not hang on the input out of the call, or do it "
            "with tensors",
            "函数 {op} 在算子之外变慢；请把与输入无关的部分移出调用，或改用张量运算",
        ),
        steps=(12,),
    ),
)
