"""Why a call could not be compiled, or a graph could not be judged."""

from __future__ import annotations

from perfgate.judging.report.locale.documents import Text

MESSAGES: tuple[Text, ...] = (
    Text("no compiler is known for a device of kind {kind}", "没有适用于 {kind} 设备的编译器"),
    Text("triton, which compiles for a GPU, is not installed", "未安装 triton（GPU 编译所需）"),
    Text(
        "the C++ compiler {compiler}, which inductor needs on a CPU, is not on PATH",
        "PATH 中没有 C++ 编译器 {compiler}（inductor 在 CPU 上所需）",
    ),
    Text(
        "torchair, which compiles for an NPU, cannot be imported: {error}; "
        "pip install protobuf attrs packaging gives it what torch_npu does not bring along",
        "无法导入 torchair（NPU 图模式所需）：{error}；请执行 pip install protobuf attrs packaging 补齐 torch_npu 未自带的依赖",
    ),
    Text(
        "the model cannot be copied, and the original shall stay as it is: {error}",
        "模型无法复制，而原模型须保持不变：{error}",
    ),
    Text(
        "the workload compiles itself, and this torch cannot run it without (2.6 and later can)",
        "workload 自行编译，而此版本 torch 无法不经编译运行它（2.6 及以上可以）",
    ),
    Text(
        "the workload compiles itself, and each of its training steps changes the next one",
        "workload 自行编译，且每个训练步都会影响下一步",
    ),
    Text("the compiler was not done in the time it is given, and stopped", "编译未能在限定时间内完成，已停止"),
    Text("the compiler fails: {error}", "编译失败：{error}"),
    Text(
        "the compiled call's output has another structure, or none that could be compared",
        "编译后调用的输出结构不同，或没有可比较的内容",
    ),
    Text(
        "the compiled call answers differently: {far}, {count} values are not finite any more",
        "编译后的调用输出不同：{far}，有 {count} 个值不再是有限值",
    ),
    Text("{difference} of the largest value, {tolerance} may be", "偏差达最大值的 {difference}，允许 {tolerance}"),
    Text(
        "the compiled call is not faster beyond doubt, so no number of calls pays for compiling",
        "编译后的调用没有确定变快，因此调用再多也收不回编译的开销",
    ),
    Text(
        "the trace does not show the compiler's entry, the graph and work after it in every call",
        "轨迹中并非每次调用都有编译器入口、图以及其后的内容",
    ),
    Text(
        "the recording holds neither launches of kernels or graphs nor kernels with the number of a graph",
        "录制数据中既没有 kernel 或图的下发，也没有带图编号的 kernel",
    ),
    Text("called with something new", "以新的输入调用"),
    Text("compiled again", "重新编译"),
)
