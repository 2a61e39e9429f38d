"""Which changes the workloads run: changes like those of public projects, and all ways in which text becomes data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pytest

from perfgate.conductor.code.reads import watch_reads
from perfgate.conductor.workers.bench import Bench, open_bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.config import WorkloadReference, parse_config
from perfgate.document.coverage import Coverage
from perfgate.document.run import Side
from perfgate.flows.check.changed_files import changed_files
from perfgate.flows.check.coverage import CodeWatch

CONFIG = 'project = "a"\nworkload = "perf/workload.py:small"\n'
REFERENCE = WorkloadReference("small", "perf/workload.py", "small")
WORKLOAD = """import torch
from model import Model
from perfgate import Workload


def build(device):
    return Model().eval()


def inputs(batch, seed):
    return torch.full((batch, 4), float(seed))


small = Workload(build=build, inputs=inputs, batch=1)
"""
MODEL = '''"""A small model."""
import torch

from pkg import ops
from pkg.registry import names

SCALE = 2.0
LABELS = {"a": 1, "b": 2}


class Model(torch.nn.Module):
    """Returns scaled inputs."""

    width = 4

    def __init__(self, depth=2):
        super().__init__()
        self.depth = depth
        self.calls = 0

    def forward(self, x):
        """Scale it."""
        self.calls += 1
        for _ in range(self.depth):
            x = ops.scale(x, SCALE)
        if self.training:
            x = ops.dropout(x)
        if self.calls % 50 == 0:
            ops.compact(names())
        try:
            x = ops.shift(x)
        except ValueError:
            x = ops.recover(x)
        return x

    def generate(self, x, steps=3):
        for _ in range(steps):
            x = self(x)
        return ops.sample(x)

    @property
    def size(self):
        return self.width * self.depth

    def extra_repr(self):
        return f"depth={self.depth}"
'''
OPS = """def scale(x, factor):
    return x * factor


def shift(x):
    values = [
        value
        for value in (1, 2)
    ]
    return x + sum(values)


def compact(words):
    return sorted(words)


def dropout(x):
    return x * 0.5


def recover(x):
    return x - 1


def sample(x):
    return x.argmax()
"""
REGISTRY = """NAMES = []


def register(function):
    NAMES.append(function.__name__)
    return function


@register
def first():
    return 1


def names():
    return [*NAMES, "last"]
"""
PROJECT = {
    "perfgate.toml": CONFIG,
    "perf/workload.py": WORKLOAD,
    "model.py": MODEL,
    "pkg/__init__.py": "",
    "pkg/ops.py": OPS,
    "pkg/registry.py": REGISTRY,
    "pkg/export.py": "import json\n\n\ndef export(model):\n    return json.dumps(str(model))\n",
    "pkg/cli.py": "import argparse\n\n\ndef main():\n    return argparse.ArgumentParser().parse_args()\n",
    "tests/test_ops.py": "from pkg.ops import sample\n\n\ndef test_sample():\n    assert sample\n",
    "scripts/train.py": "from model import Model\n\nModel().train()\n",
    "docs/guide.md": "A guide.\n",
    "README.md": "A model.\n",
}
Change = tuple[str, str, str]
EXECUTED: dict[str, Change] = {
    "the body of a function that is called": ("pkg/ops.py", "return x * factor", "return x * factor * 1"),
    "a constant of a module": ("model.py", "SCALE = 2.0", "SCALE = 2.5"),
    "a table of a module": ("model.py", '"b": 2', '"b": 3'),
    "a default of the constructor": ("model.py", "depth=2", "depth=3"),
    "an attribute of a class": ("model.py", "width = 4", "width = 5"),
    "a loop around a statement": ("model.py", "for _ in range(self.depth)", "for _ in range(self.depth + 1)"),
    "a condition whose branch is not taken": ("model.py", "if self.training:", "if self.training or x is None:"),
    "the branch of every 50th call": ("model.py", "ops.compact(names())", "ops.compact(names() * 2)"),
    "a function that every 50th call uses": ("pkg/ops.py", "return sorted(words)", "return sorted(words * 9)"),
    "an inner line of a comprehension": ("pkg/ops.py", "for value in (1, 2)", "for value in (1, 2, 3)"),
    "an import": ("model.py", "import torch\n", "import json\nimport torch\n"),
    "a removed statement": ("model.py", "        self.calls += 1\n", ""),
    "a decorated function of the registry": (
        "pkg/registry.py",
        "@register\ndef first",
        "@register\n@register\ndef first",
    ),
    "a removed decorator": ("pkg/registry.py", "@register\n", ""),
    "a body of try": ("model.py", "x = ops.shift(x)", "x = ops.shift(x) + 0"),
    "a base class": ("model.py", "(torch.nn.Module)", "(torch.nn.Identity)"),
    "code of a package": ("pkg/__init__.py", "", "VERSION = 1\n"),
    "a statement that moves into an else": (
        "model.py",
        "        return x\n\n    def gen",
        "        else:\n            pass\n        return x\n\n    def gen",
    ),
    "a method that overrides one that is called": (
        "model.py",
        "    def extra_repr",
        "    def __call__(self, x):\n        return super().__call__(x)\n\n    def extra_repr",
    ),
    "a function that shadows a builtin": (
        "pkg/ops.py",
        "def compact",
        "def sum(values):\n    return 3\n\n\ndef compact",
    ),
}
NOT_EXECUTED: dict[str, Change] = {
    "a method that is not called": ("model.py", "for _ in range(steps)", "for _ in range(steps + 1)"),
    "a default of a method that is not called": ("model.py", "steps=3", "steps=4"),
    "a function that only such a method uses": ("pkg/ops.py", "x.argmax()", "x.argmin()"),
    "a branch of training": ("model.py", "x = ops.dropout(x)", "x = ops.dropout(x) * 1"),
    "a function of that branch": ("pkg/ops.py", "return x * 0.5", "return x * 0.6"),
    "a handler of errors": ("model.py", "x = ops.recover(x)", "x = ops.recover(x) + 1"),
    "a function of that handler": ("pkg/ops.py", "return x - 1", "return x - 2"),
    "a property that is not read": ("model.py", "self.width * self.depth", "self.width + self.depth"),
    "how a model is printed": ("model.py", 'f"depth={self.depth}"', 'f"depth: {self.depth}"'),
    "a module that is not imported": ("pkg/export.py", "str(model)", "repr(model)"),
    "an import of a module that is not imported": ("pkg/export.py", "import json\n", "import json\nimport sys\n"),
    "the command line": ("pkg/cli.py", "ArgumentParser()", 'ArgumentParser("model")'),
    "a test": ("tests/test_ops.py", "assert sample", "assert callable(sample)"),
    "a script": ("scripts/train.py", "Model().train()", "Model(3).train()"),
    "a comment": ("model.py", "SCALE = 2.0", "SCALE = 2.0  # of the inputs"),
    "a docstring that nothing reads": (
        "pkg/export.py",
        "def export(model):\n",
        'def export(model):\n    """Export it."""\n',
    ),
    "a new module": ("pkg/fast.py", "", "def fast(x):\n    return x\n"),
    "a guide": ("docs/guide.md", "A guide.", "A longer guide."),
    "a readme": ("README.md", "A model.", "A small model."),
    "a new test": ("tests/test_model.py", "", "from model import Model\n\n\ndef test_model():\n    assert Model\n"),
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    root = tmp_path_factory.mktemp("bench")
    (root / "perfgate.toml").write_text(CONFIG)
    config = parse_config(CONFIG, root / "perfgate.toml")
    with open_bench(config, logs=root / "logs", say=lambda _: None) as made:
        yield made


def _write(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def _coverage(
    bench: Bench,
    folder: Path,
    base: Mapping[str, str],
    head: Mapping[str, str],
    python_path: Mapping[Side, Sequence[str]] = MappingProxyType({"base": ["."], "head": ["."]}),
) -> Coverage:
    """What the trials of both sides show of the change from one set of files to another."""
    trees = {"base": folder / "base", "head": folder / "head", "harness": folder / "harness"}
    for name, files in (("base", base), ("head", head), ("harness", head)):
        _write(trees[name], files)
    changed = [name for name in sorted({*base, *head}) if base.get(name) != head.get(name)]
    files = changed_files(
        trees["base"],
        trees["head"],
        changed,
        always={"perfgate.toml", "perf/workload.py"},
        excluded=[name for name in changed if name.startswith("docs/")],
    )
    reading = {name: watch_reads(trees[name], base if name == "base" else head) for name in trees}
    watch = CodeWatch(files, trees, reading, python_path=python_path, has_jobs=False)
    for_head = Checkout(root=trees["head"], harness=trees["head"])
    assert watch.try_workload(bench, for_head, REFERENCE, "head").error is None
    if watch.needs_base():
        for_base = Checkout(root=trees["base"], harness=trees["harness"])
        assert watch.try_workload(bench, for_base, REFERENCE, "base").error is None
    found = watch.result([REFERENCE])
    assert found is not None
    return found


def _changed(change: Change) -> dict[str, str]:
    file, old, new = change
    text = PROJECT.get(file, "")
    assert old in text
    return {**PROJECT, file: text.replace(old, new, 1) if old else text + new}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXECUTED)
def test_coverage__change_that_the_workload_runs__measured(bench: Bench, tmp_path: Path, name: str) -> None:
    coverage = _coverage(bench, tmp_path, PROJECT, _changed(EXECUTED[name]))
    assert not coverage.runs_nothing
    assert any(function.executed == "yes" for function in coverage.functions), coverage


@pytest.mark.slow
@pytest.mark.parametrize("name", NOT_EXECUTED)
def test_coverage__change_that_no_workload_runs__not_measured(bench: Bench, tmp_path: Path, name: str) -> None:
    coverage = _coverage(bench, tmp_path, PROJECT, _changed(NOT_EXECUTED[name]))
    assert coverage.runs_nothing, coverage


# How frameworks turn text of the code, or documents, into what a model reads: the part that stays as it is, then base and head.
_ANSWER = 'class Answer(Signature):\n    """{text}"""\n'
_TOOL = 'def tool(x):\n    """{text}"""\n    return x\n'
_SHORT, _LONG = "Answer.", "Answer, and cite your sources."
READERS: dict[str, tuple[str, str, str]] = {
    "docstring of a class": (
        "class Signature:\n    pass\n\n\ndef read():\n    from texts import Answer\n\n    return Answer.__doc__\n",
        "texts.py",
        "from reader import Signature\n\n\n" + _ANSWER,
    ),
    "docstring through inspect": (
        "import inspect\n\n\ndef read():\n    import texts\n\n    return inspect.getdoc(texts.tool)\n",
        "texts.py",
        _TOOL,
    ),
    "source through inspect": (
        "import inspect\n\n\ndef read():\n    import texts\n\n    return inspect.getsource(texts.tool)\n",
        "texts.py",
        "def tool(x):\n    return x  # {text}\n",
    ),
    "docstring through the syntax tree": (
        "import ast\nimport pathlib\n\n\ndef read():\n    source = pathlib.Path(__file__).with_name('texts.py').read_text()\n"
        "    return ast.get_docstring(ast.parse(source).body[0])\n",
        "texts.py",
        _TOOL,
    ),
    "metaclass": (
        "TEXTS = []\n\n\nclass Meta(type):\n    def __init__(cls, name, bases, space):\n"
        "        TEXTS.append(space.get('__doc__'))\n\n\n"
        "class Signature(metaclass=Meta):\n    pass\n\n\ndef read():\n    import texts\n\n    return str(TEXTS)\n",
        "texts.py",
        "from reader import Signature\n\n\n" + _ANSWER,
    ),
    "description of a command line": (
        "import argparse\n\n\ndef read():\n    import texts\n\n"
        "    return argparse.ArgumentParser(description=texts.__doc__).format_help()\n",
        "texts.py",
        '"""{text}"""\n',
    ),
    "decorator of a command": (
        "HELP = []\n\n\ndef command(function):\n    HELP.append(function.__doc__)\n    return function\n\n\n"
        "def read():\n    import texts\n\n    return str(HELP)\n",
        "texts.py",
        "from reader import command\n\n\n@command\n" + _TOOL,
    ),
    "all functions of a module": (
        "def read():\n    import texts\n\n"
        "    return ' '.join(f'{name} {value.__doc__}' for name, value in vars(texts).items())\n",
        "texts.py",
        _TOOL,
    ),
    "examples of docstrings": (
        "import doctest\n\n\ndef read():\n    import texts\n\n    return str(doctest.DocTestFinder().find(texts))\n",
        "texts.py",
        'def tool(x):\n    """\n    >>> "{text}"\n    """\n    return x\n',
    ),
    "document through a computed path": (
        "import pathlib\n\nFOLDER = 'docs'\n\n\ndef read():\n"
        "    return (pathlib.Path(__file__).parent / FOLDER / 'answer.md').read_text()\n",
        "docs/answer.md",
        "{text}\n",
    ),
    "documents of a folder": (
        "import pathlib\n\n\ndef read():\n    folder = pathlib.Path(__file__).parent / 'docs'\n"
        "    return ' '.join(file.read_text() for file in folder.iterdir())\n",
        "docs/answer.md",
        "{text}\n",
    ),
    "data of a package": (
        "import pkgutil\n\n\ndef read():\n    return pkgutil.get_data('pkg', 'answer.md').decode()\n",
        "pkg/answer.md",
        "{text}\n",
    ),
    "resource of a package": (
        "import importlib.resources\n\n\ndef read():\n"
        "    return importlib.resources.files('pkg').joinpath('answer.md').read_text()\n",
        "pkg/answer.md",
        "{text}\n",
    ),
    "text in another process": (
        "import subprocess\n\n\ndef read():\n"
        "    return subprocess.run(['cat', 'docs/answer.md'], capture_output=True).stdout.decode()\n",
        "docs/answer.md",
        "{text}\n",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_coverage__text_that_the_workload_reads__measured(bench: Bench, tmp_path: Path, name: str) -> None:
    reader, file, text = READERS[name]
    model = MODEL.replace("import torch\n", "import torch\n\nimport reader\n", 1)
    model = model.replace("self.calls = 0", "self.calls = len(reader.read())")
    base = {**PROJECT, "model.py": model, "reader.py": reader, file: text.replace("{text}", _SHORT)}
    coverage = _coverage(bench, tmp_path, base, {**base, file: text.replace("{text}", _LONG)})
    assert not coverage.runs_nothing


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "text"),
    [("data.json", "{}"), ("requirements.txt", "torch"), ("setup.py", "import setuptools"), ("pkg/fast.cpp", "int x;")],
)
def test_coverage__data_settings_and_other_languages__measured(
    bench: Bench, tmp_path: Path, file: str, text: str
) -> None:
    coverage = _coverage(bench, tmp_path, PROJECT, {**PROJECT, file: text, "pkg/cli.py": "LATER = 1\n"})
    assert [doubt.code for doubt in coverage.doubts] == ["coverage.changed"]
    assert [function.executed for function in coverage.functions] == ["no", "no"]


@pytest.mark.slow
def test_coverage__module_beside_the_workload__the_file_that_was_loaded_counts(bench: Bench, tmp_path: Path) -> None:
    ops = "try:\n    import shades\nexcept ImportError:\n    shades = None\nimport colorsys\n\n\n" + OPS
    base = {**PROJECT, "pkg/ops.py": ops}
    # The standard library comes before the workload's folder, so one of the two is loaded.
    added = {"perf/shades.py": "SLOW = sum(range(10))\n", "perf/colorsys.py": "SLOW = sum(range(10))\n"}
    coverage = _coverage(bench, tmp_path, base, {**base, **added})
    executed = {function.line.partition(":")[0]: function.executed for function in coverage.functions}
    assert executed == {"perf/shades.py": "yes", "perf/colorsys.py": "no"}


@pytest.mark.slow
def test_coverage__copy_below_a_folder_of_the_bases_own_path__doubted(bench: Bench, tmp_path: Path) -> None:
    copies = tmp_path / "copies"
    _write(copies, {"shades/__init__.py": "", "shades/dark.py": "def shade(x):\n    return x\n"})
    workload = f"import sys\n\nsys.path.insert(0, {str(copies)!r})\nimport shades.dark\n{WORKLOAD}"
    base = {**PROJECT, "perf/workload.py": workload, "code/shades/dark.py": "def shade(x):\n    return x\n"}
    head = {**base, "code/shades/dark.py": "def shade(x):\n    return x + 0\n"}
    seen = {}
    for name, paths in {"own": ["code"], "none": ["."]}.items():
        coverage = _coverage(bench, tmp_path / name, base, head, python_path={"base": paths, "head": ["."]})
        seen[name] = [doubt.code for doubt in coverage.doubts]
    assert seen == {"own": ["coverage.elsewhere"], "none": []}


@pytest.mark.slow
def test_coverage__some_functions_run__the_others_are_named_with_their_tests(bench: Bench, tmp_path: Path) -> None:
    ops = OPS.replace("x.argmax()", "x.argmin()").replace("return x * factor", "return x * factor * 1")
    coverage = _coverage(bench, tmp_path, PROJECT, {**PROJECT, "pkg/ops.py": ops})
    assert {function.function: function.executed for function in coverage.functions} == {"scale": "yes", "sample": "no"}
    assert [function.workloads for function in coverage.executed] == [["small"]]
    only = _coverage(
        bench, tmp_path / "only", PROJECT, {**PROJECT, "pkg/ops.py": OPS.replace("x.argmax()", "x.argmin()")}
    )
    assert only.nearest == ["tests/test_ops.py::test_sample", "small"]
