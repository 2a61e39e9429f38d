"""Common mistakes, recognized by the type and words of an exception of torch, Python or a model hub, with advice."""

from __future__ import annotations

import re
from typing import NamedTuple

from perfgate.document.message import Message


class Symptom(NamedTuple):
    """One way in which a mistake shows: an exception of one of these classes, bases included, with these words in its text.

    ``advice`` is a code of ``catalogue/messages/mistake.toml``; the named groups of ``words`` are the values of its places.
    With ``at_call`` it counts only if no line of the project was running, so that perfgate's own call was refused.
    """

    advice: str
    errors: str
    words: str
    at_call: bool = False

    def match(self, error: BaseException, text: str, *, at_call: bool) -> re.Match[str] | None:
        names = {base.__name__ for base in type(error).__mro__}  # of libraries that are not imported here, too
        if (self.at_call and not at_call) or names.isdisjoint(self.errors.split()):
            return None
        # Whole words: "input" holds "npu".
        return re.search(rf"(?<!\w)(?:{self.words})(?!\w)", text)


_TYPES = r"[\w. ]+"
_SIZES = r"[\d, ]*"
_SHAPE = rf"(?:torch\.Size\()?(?P<{{}}>\[{_SIZES}\])\)?"
_NO_TENSOR = r"list|tuple|str|int|float|dict|(?:numpy\.)?ndarray"

# The first that fits gives the advice.
SYMPTOMS = (
    # --- memory and the device
    Symptom("mistake.no-memory", "MemoryError OutOfMemoryError", r".*"),
    Symptom("mistake.no-memory", "RuntimeError", r"out of memory|can't allocate memory|not enough memory"),
    Symptom("mistake.other-device", "AssertionError RuntimeError", r"not compiled with (?P<other>CUDA|NPU) enabled"),
    Symptom(
        "mistake.other-device",
        "RuntimeError",
        r"Found no (?P<other>NVIDIA) driver|No (?P<gpus>CUDA) GPUs are available",
    ),
    Symptom("mistake.other-device", "RuntimeError", r"(?:at start of )?device string: (?P<other>npu|cuda)"),
    Symptom(
        "mistake.other-device", "AttributeError", r"(?:'\w+' object|module 'torch') has no attribute '(?P<other>npu)'"
    ),
    Symptom("mistake.two-devices", "RuntimeError", r"Expected all tensors to be on the same device"),
    Symptom(
        "mistake.two-devices",
        "RuntimeError",
        r"Input type \(torch\.\w+\.\w+\) and \w+ type \(torch\.\w+\) should be the same",
    ),
    Symptom("mistake.map-location", "RuntimeError", r"Attempting to deserialize object on an? \w+ device"),
    Symptom("mistake.meta-weights", "NotImplementedError", r"Cannot copy out of meta tensor"),
    Symptom("mistake.meta-weights", "RuntimeError", r"Tensor on device meta is not on the expected device"),
    Symptom("mistake.device-index", "RuntimeError", r"device-side assert triggered"),
    Symptom("mistake.no-kernels", "RuntimeError", r"no kernel image is available for execution on the device"),
    # --- the inputs
    Symptom(
        "mistake.channels",
        "RuntimeError",
        rf"expected input\[{_SIZES}\] to have (?P<takes>\d+) channels, but got (?P<given>\d+)",
    ),
    Symptom(
        "mistake.dimensions", "RuntimeError", rf"input to (?P<layer>\w+), but got input of size: (?P<size>\[{_SIZES}\])"
    ),
    Symptom("mistake.features", "RuntimeError", r"cannot be multiplied \(\d+x(?P<given>\d+) and (?P<takes>\d+)x\d+\)"),
    Symptom(
        "mistake.features", "RuntimeError", r"must be equal to input_size\. Expected (?P<takes>\d+), got (?P<given>\d+)"
    ),
    Symptom(
        "mistake.features",
        "RuntimeError",
        rf"Given normalized_shape=\[(?P<takes>{_SIZES})\], expected .* got input of size\s?\[(?:\d+, )*(?P<given>\d+)\]",
    ),
    Symptom(
        "mistake.dtype", "RuntimeError", rf"same dtype, but got:? (?P<given>{_TYPES}?) (?:and|!=) (?P<takes>{_TYPES})"
    ),
    Symptom(
        "mistake.dtype",
        "RuntimeError",
        rf"Input type \((?P<given>{_TYPES})\) and \w+ type \((?P<takes>{_TYPES})\) should be the same",
    ),
    Symptom(
        "mistake.dtype", "RuntimeError", rf"expected scalar type (?P<takes>{_TYPES}) but found (?P<given>{_TYPES})"
    ),
    Symptom(
        "mistake.indices",
        "RuntimeError",
        r"argument #\d 'indices' to have one of the following scalar types: Long, Int",
    ),
    Symptom("mistake.index-range", "IndexError", r"index out of range in self"),
    Symptom(
        "mistake.no-tensor",
        "TypeError",
        rf"argument '\w+' \(position \d+\) must be Tensor, not (?P<given>{_NO_TENSOR})",
    ),
    Symptom("mistake.no-tensor", "TypeError", rf"invalid combination of arguments - got \((?P<given>{_NO_TENSOR})"),
    Symptom(
        "mistake.no-tensor",
        "AttributeError",
        rf"'(?P<given>{_NO_TENSOR})' object has no attribute '(?:view|shape|size|dim|to|dtype|device|float|unsqueeze|permute)'",
    ),
    # --- how the model is called
    Symptom(
        "mistake.too-few", "TypeError", r"missing \d+ required positional arguments?: (?P<names>'.*')", at_call=True
    ),
    Symptom("mistake.not-named", "TypeError", r"got an unexpected keyword argument '(?P<name>\w+)'", at_call=True),
    Symptom(
        "mistake.too-many",
        "TypeError",
        r"takes (?:from \d+ to )?\d+ positional arguments? but \d+ (?:was|were) given",
        at_call=True,
    ),
    Symptom("mistake.no-model", "TypeError", r"'(?P<given>[\w.]+)' object is not callable", at_call=True),
    Symptom(
        "mistake.no-forward",
        "NotImplementedError",
        r'Module \[(?P<given>\w+)\] is missing the required "forward" function',
    ),
    Symptom("mistake.training-mode", "ValueError", r"Expected more than 1 value per channel when training"),
    Symptom("mistake.precision", "RuntimeError", r"not implemented for '(?P<given>Half|BFloat16|Float8\w*)'"),
    Symptom("mistake.precision", "RuntimeError", r"Low precision dtypes not supported\. Got (?P<given>\w+)"),
    # --- gradients
    Symptom("mistake.no-gradient", "RuntimeError", r"does not require grad and does not have a grad_fn"),
    Symptom("mistake.inference-mode", "RuntimeError", r"Inference tensors cannot be saved for backward"),
    Symptom("mistake.inference-mode", "RuntimeError", r"Inplace update to inference tensor outside InferenceMode"),
    Symptom("mistake.second-backward", "RuntimeError", r"Trying to backward through the graph a second time"),
    # --- weights
    Symptom("mistake.lfs", "UnpicklingError", r"invalid load key, 'v'|Unsupported operand 118"),
    Symptom("mistake.whole-model", "UnpicklingError", r"Weights only load failed"),
    Symptom("mistake.cut-off", "RuntimeError", r"PytorchStreamReader failed"),
    Symptom("mistake.cut-off", "EOFError", r"Ran out of input"),
    Symptom(
        "mistake.data-parallel",
        "RuntimeError",
        r'loading state_dict for (?s:.*)Unexpected key\(s\) in state_dict: "module\.[\w.]+',
    ),
    Symptom(
        "mistake.other-sizes",
        "RuntimeError",
        rf"size mismatch for (?P<name>[\w.]+): copying a param with shape {_SHAPE.format('given')} from checkpoint, "
        rf"the shape in current model is {_SHAPE.format('takes')}",
    ),
    Symptom(
        "mistake.other-names",
        "RuntimeError",
        r"loading state_dict for (?s:.*)(?:Missing|Unexpected) key\(s\) in state_dict: \"(?P<name>[\w.]+)",
    ),
    Symptom("mistake.offline", "gaierror LocalEntryNotFoundError OfflineModeIsEnabled", r".*"),
    Symptom(
        "mistake.offline",
        "OSError",
        r"<urlopen error .*>|Max retries exceeded with url|couldn't connect to '?https?://",
    ),
    # --- imports and libraries
    Symptom("mistake.notebook", "ImportError", r"cannot import name '(?P<name>\w+)' from '__main__'"),
    Symptom("mistake.relative-import", "ImportError", r"attempted relative import with no known parent package"),
    Symptom(
        "mistake.library", "ImportError OSError", r"(?P<name>lib[\w.+-]+\.so(?:\.\d+)*): cannot open shared object file"
    ),
    Symptom("mistake.old-numpy", "RuntimeError", r"Numpy is not available"),
    Symptom("mistake.no-compiler", "RuntimeError", r"No working C\+\+ compiler found|Failed to find C compiler"),
    # --- processes
    Symptom(
        "mistake.loader",
        "RuntimeError",
        r"DataLoader worker \(pid(?:\(s\))? [\d, ]+\) (?:exited unexpectedly|is killed by signal)",
    ),
    Symptom("mistake.one-process", "ValueError RuntimeError", r"Default process group has not been initialized"),
    Symptom(
        "mistake.one-process",
        "ValueError RuntimeError",
        r"environment variable (?:RANK|WORLD_SIZE|MASTER_ADDR) expected, but not set",
    ),
)
_DEVICES = {"nvidia": "cuda"}


def hint_on(error: BaseException, *, device_kind: str | None, at_call: bool) -> tuple[Message, str] | None:
    """The remedy for the first mistake that the error shows, and the words of its text that identify the mistake.

    None if it is not a common mistake.
    """
    text = str(error)
    for symptom in SYMPTOMS:
        match = symptom.match(error, text, at_call=at_call)
        if match is None:
            continue
        values = {name: value.strip() for name, value in match.groupdict().items() if value is not None}
        if symptom.advice == "mistake.other-device":
            kind = (values.get("other") or values["gpus"]).lower()
            values = {"device": device_kind or "", "other": _DEVICES.get(kind, kind)}
            if device_kind is None or values["other"] == device_kind:
                continue
        return Message(symptom.advice, values), match.group()
    return None
