"""The common mistakes of people who measure a model for the first time, and the exact sentence that each is answered with.

The second half was collected from public issue trackers. The errors are real ones of torch, git and this package, apart from
those of machines that are not here.
"""

from __future__ import annotations

import string
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.error import URLError

import pytest
import torch

from perfgate.config import parse_config
from perfgate.document.message import as_message, english
from perfgate.git.repository import Repository
from perfgate.measuring.checklist.mistakes import ProjectCode
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.worker.trial import try_calls
from perfgate.measuring.worker.worker import describe_error
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.measuring.workload.load import load_workload

Mistake = Callable[[Path], object]

WORKLOAD = """import torch
from torch import nn

from perfgate import Workload


def build(device):
    return nn.Linear(4, 4).eval()


def inputs(batch, seed):
    return torch.ones(batch, 4)


{code}
net = Workload(build=build, inputs=inputs{arguments})
"""


def workload(code: str, arguments: str = "") -> Mistake:
    """A workload of a linear layer that is right but for this code; every shape is called once."""

    def measure(root: Path) -> None:
        file = root / "workload.py"
        file.write_text(WORKLOAD.format(code=code, arguments=f", {arguments}" if arguments else ""))
        device = open_device("cpu")
        bound = BoundWorkload("net", load_workload(file, "net", root=root, python_path=[]), device, seed=0, root=root)
        if failed := try_calls(bound):
            raise failed[2]

    return measure


def model(layer: str, tensor: str) -> Mistake:
    """A model that is one layer, and what its inputs return."""
    return workload(f"def build(device):\n    return {layer}\n\n\ndef inputs(batch, seed):\n    return {tensor}\n")


def forward(parameters: str, tensors: str) -> Mistake:
    code = f"class Net(nn.Module):\n    def forward(self, {parameters}):\n        return x\n"
    return workload(
        f"{code}\n\ndef build(device):\n    return Net()\n\n\ndef inputs(batch, seed):\n    return {tensors}\n"
    )


def weights(saved: str, load: str) -> Mistake:
    lines = [
        "import io",
        "file = io.BytesIO()",
        f"torch.save({saved}, file)",
        "file.seek(0)",
        load,
        "return nn.Linear(4, 4)",
    ]
    return workload("def build(device):\n" + "".join(f"    {line}\n" for line in lines))


def toml(text: str) -> Mistake:
    return lambda _: parse_config(text, Path("perfgate.toml"))


def raising(error: Exception) -> Mistake:
    """An error of a machine that is not here."""

    def fail(_: Path) -> None:
        raise error

    return fail


def repository(*commands: str) -> Mistake:
    def look(root: Path) -> str:
        for command in commands:
            subprocess.run(["git", *command.split()], cwd=root, check=True, capture_output=True)
        found = Repository(root)
        found.head()
        return found.main_branch()

    return look


def notebook(root: Path) -> None:
    file = root / "model.ipynb"
    file.touch()
    load_workload(file, "net", root=root, python_path=[])


CASES: dict[str, tuple[Mistake, str]] = {
    # --- tried by hand as a new user would
    "device without its torch": (
        lambda _: open_device("cuda"),
        "device 'cuda' cannot be opened: this torch $torch has no CUDA; install a build that has it from PyTorch's package "
        'index, by the command that pytorch.org prints under "Start locally" (pip install torch --index-url …); '
        "these can be opened here: cpu",
    ),
    "no git": (
        repository(),
        "$root is not in a git repository; run `git init` and commit, or go to a clone",
    ),
    "no commit": (
        repository("init -q"),
        "git knows no commit 'HEAD' in $root; the repository has no commit yet; commit something first",
    ),
    "notebook named": (
        notebook,
        "workload file model.ipynb is not a Python file; its name must end in .py",
    ),
    "class of a notebook": (
        workload("from __main__ import Net"),
        "ImportError: cannot import name 'Net' from '__main__' ($main) (at workload.py:15); Net was defined in a "
        "notebook or script, and the workload file is run by itself: put Net into a module of the project and import it "
        "from there",
    ),
    "relative import": (
        workload("from .model import Net"),
        "ImportError: attempted relative import with no known parent package (at workload.py:15); the workload file is "
        "run by itself and lies in no package: write the import absolutely, from package.module import name",
    ),
    "package missing": (
        workload("import transformerz"),
        "ModuleNotFoundError: No module named 'transformerz' (at workload.py:15); install the package that has "
        "transformerz for $python, or name the folder of the project that holds it in [measure] python_path",
    ),
    "weights offline": (
        raising(URLError("[Errno -2] Name or service not known")),
        "urllib.error.URLError: <urlopen error [Errno -2] Name or service not known>; there is no network here: download "
        "into a cache of the hub beforehand, and name a cache outside ~/.cache by HF_HOME or TORCH_HOME",
    ),
    "inputs on cuda": (
        model("nn.Linear(4, 4)", "torch.ones(batch, 4).cuda()"),
        "AssertionError: Torch not compiled with CUDA enabled (at workload.py:20); it is measured on cpu: write "
        '.to(device) with the device that build(device) gets, or set device = "cuda" in perfgate.toml',
    ),
    "wrong channels": (
        model("nn.Conv2d(3, 8, 3)", "torch.ones(batch, 1, 16, 16)"),
        "RuntimeError: Given groups=1, weight of size [8, 3, 3, 3], expected input[1, 1, 16, 16] to have 3 channels, but "
        "got 1 channels instead; the second dimension of the tensor holds 1 channels and the layer takes 3: correct "
        "inputs, or in_channels of the layer",
    ),
    "inputs without seed": (
        workload("def inputs(batch):\n    return torch.ones(batch, 4)\n"),
        "TypeError: inputs() takes 1 positional argument but 2 were given; perfgate calls inputs(batch, seed): write the "
        "function with these parameters",
    ),
    "list for tensor": (
        model("nn.Linear(4, 4)", "[1.0, 2.0]"),
        "TypeError: linear(): argument 'input' (position 1) must be Tensor, not list; it got a list in place of a tensor:"
        " let inputs return tensors, for instance torch.as_tensor(…)",
    ),
    "typo in a key": (
        toml('workload = "perf/workload.py:net"\n[gate]\nbudgte = 5\n'),
        "perfgate.toml: [gate] unknown key 'budgte'; did you mean 'budget'?; known keys: looks, budget, checklist_budget,"
        " unmeasured, aa_pairs, quads, block_seconds, cpus, alpha, alpha_ok, ok_margin, strict, tolerance",
    ),
    "weights by a relative path": (
        workload('torch.load("weights/w.pt")'),
        "FileNotFoundError: [Errno 2] No such file or directory: 'weights/w.pt' (at workload.py:15); weights/w.pt is not "
        "in the checkout, the base of relative paths; to include a file that git ignores, write link = "
        '["weights/w.pt"] under [measure] in perfgate.toml',
    ),
    "huge model": (
        model("nn.Linear(10**7, 10**7)", "torch.ones(batch, 10**7)"),
        "out of memory: RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate "
        "memory: you tried to allocate 400000000000000 bytes (at workload.py:16); let a call do less, for instance a "
        "smaller batch or fewer layers, in training recompute activations (gradient checkpointing: about a third more "
        "time for a fraction of their memory), or measure on a machine with more free memory",
    ),
    "function returned": (
        workload("", "call=lambda model, inputs: lambda: model(inputs)"),
        "the call returns the function <lambda> without calling it; make call= call it and return its result",
    ),
    "nothing returned": (
        workload("", "call=lambda model, inputs: None"),
        "the call runs no framework operator and returns no computed value, only None; make "
        "call= read the whole output and return its values",
    ),
    "pointer of LFS": (
        workload(
            'with open("w.pt", "w") as file:\n    file.write("version https://git-lfs.github.com/spec/v1\\n")\ntorch.load("w.pt")'
        ),
        "_pickle.UnpicklingError: Weights only load failed (at workload.py:17); the file is a pointer of Git LFS in place"
        " of the weights: fetch them with `git lfs pull`, in CI by the input lfs: true",
    ),
    "percent in a tolerance": (
        toml('workload = "a.py:net"\n[gate.tolerance]\n"latency.*" = "3 %"\n'),
        "perfgate.toml: [gate.tolerance] \"latency.*\" must be a share, found '3 %'; write 0.03 for 3 %",
    ),
    "backslash": (
        toml('workload = "perf\\workload.py:net"\n'),
        "perfgate.toml is not valid TOML: Unescaped '\\' in a string (at line 1, column 19); write / in paths",
    ),
    "shapes as a list": (
        workload("", "shapes=[64]"),
        "workload 'net' in workload.py: shapes must name at least one shape; write e.g. shapes={'short': {'length': 16}, "
        "'long': {'length': 512}}",
    ),
    # --- from public issue trackers
    "two devices": (
        raising(
            RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
            )
        ),
        "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 "
        "and cpu; let"
        " build move the whole model with .to(device), and create tensors inside forward with device=x.device; "
        "perfgate moves the result of inputs",
    ),
    "weights of a GPU": (
        raising(
            RuntimeError(
                "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If you are running "
                "on a CPU-only machine, please use torch.load with map_location=torch.device('cpu') to map your storages to "
                "the CPU."
            )
        ),
        "RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False; pass "
        "map_location=device to torch.load, with the device that build(device) gets",
    ),
    "meta": (
        workload('def build(device):\n    return nn.Linear(4, 4, device="meta").to("cpu")\n'),
        "NotImplementedError: Cannot copy out of meta tensor; no data (at workload.py:16); a model on device meta has no "
        "weights: call model.to_empty(device=device) in build and load or initialize them",
    ),
    "wrong features": (
        model("nn.Linear(64, 64)", "torch.ones(batch, 63)"),
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x63 and 64x64); the last dimension of the tensor is 63"
        " and the layer takes 64: correct the shape that inputs returns, or the size of the layer",
    ),
    "wrong dtype": (
        model("nn.Linear(4, 4).half()", "torch.ones(batch, 4)"),
        "RuntimeError: mat1 and mat2 must have the same dtype, but got Float and Half; the input is Float and the weights"
        " are Half: convert one to the dtype of the other, in inputs or in build",
    ),
    "float indices": (
        model("nn.Embedding(9, 4)", "torch.ones(batch, 4)"),
        "RuntimeError: Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; "
        "but got torch.FloatTensor instead (while checking arguments for embedding); an embedding takes whole numbers: "
        "let inputs return torch.randint(0, num_embeddings, (batch, length))",
    ),
    "index out of range": (
        model("nn.Embedding(9, 4)", "torch.full((batch,), 9)"),
        "IndexError: index out of range in self; an index is not below the num_embeddings of its embedding: draw indices "
        "in inputs with torch.randint(0, num_embeddings, …)",
    ),
    "argument missing": (
        forward("x, mask", "torch.ones(batch, 4)"),
        "TypeError: Net.forward() missing 1 required positional argument: 'mask'; forward also needs 'mask': let inputs "
        "return all arguments, as a tuple in their order or as a dict by their names",
    ),
    "key of another name": (
        forward("x", "{'ids': torch.ones(batch, 4)}"),
        "TypeError: Net.forward() got an unexpected keyword argument 'ids'; the keys of a dict that inputs returns are "
        "the names of forward's arguments, and it has no argument ids: rename that key",
    ),
    "tuple for one argument": (
        forward("x", "(torch.ones(batch, 4), torch.ones(batch, 4))"),
        "TypeError: Net.forward() takes 2 positional arguments but 3 were given; each member of a tuple that inputs "
        "returns is one argument of forward: return one member for each argument, or a list for one argument",
    ),
    "build returns nothing": (
        workload("def build(device):\n    nn.Linear(4, 4)\n"),
        "TypeError: 'NoneType' object is not callable; build returned a NoneType, which cannot be called: end it with "
        "return model, or give Workload a call=",
    ),
    "build returns a list of layers": (
        workload("def build(device):\n    return nn.ModuleList([nn.Linear(4, 4)])\n"),
        'NotImplementedError: Module [ModuleList] is missing the required "forward" function; build returned a '
        "ModuleList, which only holds layers: return the module with the forward to measure, or give Workload a call=",
    ),
    "batch norm in training": (
        model("nn.BatchNorm1d(4)", "torch.ones(batch, 4)"),
        "ValueError: Expected more than 1 value per channel when training, got input size torch.Size([1, 4]); the model "
        "is in training mode: return model.eval() from build, or measure a batch of 2 or more",
    ),
    "no gradient": (
        workload("", "call=lambda model, inputs: model(inputs).sum().backward()"),
        "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn (at workload.py:16); calls "
        "run without gradients: write training code as train_step=, or give grad=True to Workload if calls need gradients",
    ),
    "pickled model": (
        weights("nn.Linear(4, 4)", "torch.load(file)"),
        "_pickle.UnpicklingError: Weights only load failed (at workload.py:20); the file holds more than tensors: save "
        "model.state_dict() and load that into the model, or pass weights_only=False to torch.load if you trust the file",
    ),
    "cut-off checkpoint": (
        weights("torch.ones(9999)", "torch.load(io.BytesIO(file.getvalue()[:999]))"),
        "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory (at "
        "workload.py:20); the checkpoint is truncated or not a checkpoint: compare its size with the original, "
        "and copy, download or"
        " save it again",
    ),
    "saved by DataParallel": (
        weights(
            '{f"module.{name}": value for name, value in nn.Linear(4, 4).state_dict().items()}',
            "nn.Linear(4, 4).load_state_dict(torch.load(file))",
        ),
        'RuntimeError: Error(s) in loading state_dict for Linear (at workload.py:20); the names begin with "module.", as '
        "DataParallel saves them: save model.module.state_dict(), or remove the prefix after loading",
    ),
    "other sizes": (
        weights("nn.Linear(5, 4).state_dict()", "nn.Linear(4, 4).load_state_dict(torch.load(file))"),
        "RuntimeError: Error(s) in loading state_dict for Linear (at workload.py:20); weight is [4, 5] in the checkpoint "
        "and [4, 4] in the model: build the model with the sizes it was trained with",
    ),
    "system library": (
        raising(ImportError("libGL.so.1: cannot open shared object file: No such file or directory")),
        "ImportError: libGL.so.1: cannot open shared object file: No such file or directory; the system library "
        "libGL.so.1 is missing: install the system package that has it, on CI runners too",
    ),
    "loader died": (
        raising(RuntimeError("DataLoader worker (pid(s) 4711) exited unexpectedly")),
        "RuntimeError: DataLoader worker (pid(s) 4711) exited unexpectedly; let the DataLoader work in this process with "
        "num_workers=0, or give the container more shared memory (docker run --shm-size)",
    ),
    "no process group": (
        workload("import torch.distributed\ntorch.distributed.all_reduce(torch.ones(1))"),
        "ValueError: Default process group has not been initialized, please make sure to call init_process_group (at "
        "workload.py:16); a workload is measured in one process without init_process_group: measure several ranks as a "
        "job with ranks = N in perfgate.toml",
    ),
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project, whose imports leave nothing behind."""
    monkeypatch.chdir(tmp_path)
    for name in ("path", "path_hooks"):
        monkeypatch.setattr(sys, name, list(getattr(sys, name)))
    monkeypatch.setattr(sys, "path_importer_cache", {})
    return tmp_path


@pytest.mark.parametrize(("mistake", "sentence"), CASES.values(), ids=CASES)
def test_explained__common_mistake__one_sentence_with_the_remedy(
    mistake: Mistake, sentence: str, project: Path
) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever the mistake raises
        mistake(project)
    detail = describe_error(caught.value, open_device("cpu"), ProjectCode(project, ["."], "cpu"))
    here = {
        "root": project,
        "python": sys.executable,
        "torch": torch.__version__,
        # Where pytest-xdist runs a test there is no such file, and Python says so.
        "main": getattr(sys.modules["__main__"], "__file__", "unknown location"),
    }
    assert english(as_message(detail.message)) == string.Template(sentence).substitute(here)
