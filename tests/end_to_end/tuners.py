"""Models whose processes do different work for the same code, as tuners, sets, homes, clocks and chance make them.

``MODELS`` maps each kind to the text of its module. Every one has the line ``hidden = tuned(x)``, whose operators vary, and the
line ``MARK`` for a change that adds an operator of its own.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

MARK = "    return hidden + x"
ADDED = "    return torch.relu(hidden) + x"
# A change that no call sees.
UNSEEN = "\n\ndef describe(model):\n    return f'a model of {sum(p.numel() for p in model.parameters())} parameters'\n"

_CANDIDATES = """
def in_one(x, weight):
    return torch.mm(x, weight)


def in_halves(x, weight):
    left, right = weight.chunk(2, dim=1)
    return torch.cat([torch.mm(x, left), torch.mm(x, right)], dim=1)


WEIGHT = torch.eye(64)
CANDIDATES = [in_one, in_halves]
"""
_CALL = f"""

def call(model, x):
    hidden = tuned(x)
{MARK}
"""

MODELS = {
    # Times its candidates on the first call, as cudnn.benchmark, triton.autotune and the tuning of aclnn do.
    "timed": _CANDIDATES
    + """
_chosen = []


def seconds_of(candidate, x):
    began = time.perf_counter()
    candidate(x, WEIGHT)
    return time.perf_counter() - began


def tuned(x):
    # Large enough that both candidates take about as long.
    wide = x.repeat(256, 1)
    if not _chosen:
        for candidate in CANDIDATES:
            candidate(wide, WEIGHT)
        _chosen.append(min(CANDIDATES, key=lambda candidate: seconds_of(candidate, wide)))
    return _chosen[0](wide, WEIGHT)[: x.shape[0]]
""",
    # Keeps its choice in a file, as the caches of tuners do: each home has its own.
    "kept": _CANDIDATES
    + """
def kept_choice():
    file = pathlib.Path.home() / ".cache" / "tuned.txt"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(str(os.urandom(1)[0] % len(CANDIDATES)))
    return CANDIDATES[int(file.read_text())]


_chosen = []


def tuned(x):
    if not _chosen:
        _chosen.append(kept_choice())
    return _chosen[0](x, WEIGHT)
""",
    # Fuses neighbours in the order of a set, which hashes of texts and addresses of objects decide.
    "order": """
WEIGHT = torch.eye(64)
NAMES = {"query", "key", "value", "gate"}


class Part:
    pass


def tuned(x):
    order = list(NAMES)
    parts = {Part() for _ in range(5)}
    _kept.append(parts)
    del _kept[:-1]
    apart = abs(order.index("query") - order.index("key")) > 1
    is_first = next(iter(parts)) is min(parts, key=id)
    hidden = torch.mm(x, WEIGHT)
    if apart:
        hidden = torch.mm(hidden, WEIGHT)
    return torch.mul(hidden, 1.0) if is_first else hidden


_kept = []
""",
    # Rebuilds its table as a clock says, on whichever call that falls.
    "clock": """
WEIGHT = torch.eye(64)
_table = {}


def tuned(x):
    now = time.monotonic()
    if now - _table.get("built", -1.0) > 0.02:
        _table["built"] = now
        _table["weight"] = torch.mm(WEIGHT, WEIGHT)
    return torch.mm(x, _table["weight"])
""",
    # Routes by weights that no seed fixes, and builds the plan of an expert on its first use.
    "random": """
WEIGHT = torch.eye(64)
_chance = random.SystemRandom()
ROUTES = [_chance.randrange(4) for _ in range(3)]


@functools.lru_cache(maxsize=2)
def plan(expert):
    return torch.mm(WEIGHT, WEIGHT)


def tuned(x):
    hidden = x
    for expert in ROUTES:
        hidden = torch.mm(hidden, plan(expert))
    return hidden
""",
}
_IMPORTS = "import functools\nimport os\nimport pathlib\nimport random\nimport time\n\nimport torch\n"
_WORKLOAD = """import models
import torch

from perfgate import Workload

tuned = Workload(
    build=lambda device: torch.nn.Linear(1, 1),
    inputs=lambda batch, seed: torch.randn(batch, 64, generator=torch.Generator().manual_seed(seed)),
    call=models.call,
    batch=8,
)
"""
_SETTINGS = """project = "tuned"
workload = "perf/workload.py:tuned"

[gate]
looks = [8]
budget = 20
checklist_budget = 0
aa_pairs = 5

[measure]
threads = 1
"""


def module_of(kind: str) -> str:
    return _IMPORTS + MODELS[kind] + _CALL


def make_project(folder: Path, kind: str, change: str) -> Path:
    """A repository whose head differs from its main branch by ``change``: an ``added`` operator, or something ``unseen``."""
    text = module_of(kind)
    changed = {"none": text, "unseen": text + UNSEEN, "added": text.replace(MARK, ADDED)}[change]
    (folder / "perf").mkdir(parents=True)
    (folder / "perfgate.toml").write_text(_SETTINGS)
    (folder / "perf" / "workload.py").write_text(_WORKLOAD)
    (folder / "models.py").write_text(text)
    _git(folder, "init", "-q", "-b", "main")
    _commit(folder, "base")
    _git(folder, "checkout", "-q", "-b", "change")
    if changed != text:
        (folder / "models.py").write_text(changed)
        _commit(folder, "head")
    return folder


def added_line(kind: str) -> str:
    lines = module_of(kind).splitlines()
    return f"models.py:{lines.index(MARK) + 1}"


def _commit(folder: Path, subject: str) -> None:
    _git(folder, "add", ".")
    _git(folder, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "-m", subject)


def _git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, check=True)
