"""The small projects that journeys gate: written by the user of a shell, with real git."""

from __future__ import annotations

import re
import shlex

from tests.journeys.installation import ROOT
from tests.journeys.shell import Shell

# What the workload of README imports.
MODEL = """\
import torch


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(128, num_heads=4, batch_first=True)
        self.norm = torch.nn.LayerNorm(128)
        self.feed = torch.nn.Sequential(torch.nn.Linear(128, 512), torch.nn.GELU(), torch.nn.Linear(512, 128))

    def forward(self, x):
        x = self.norm(x + self.attention(x, x, x, need_weights=False)[0])
        return x + self.feed(x)
"""
# A loop over the items of the batch: the feed-forward part runs eight times, for one item each.
WHOLE_BATCH = "        return x + self.feed(x)\n"
ITEM_BY_ITEM = "        return torch.cat([item + self.feed(item) for item in x.split(1)])\n"


def start_project(shell: Shell) -> None:
    """Make a repository with the package `mymodel`, whose first commit is on main."""
    shell.types('git config --global user.name "Ada" && git config --global user.email ada@example.com')
    shell.types("git init --quiet --initial-branch main model && cd model")
    shell.writes("mymodel/__init__.py", MODEL)
    shell.writes(".gitignore", "__pycache__/\n")
    commit_all(shell, "An encoder")


def gate_project(shell: Shell) -> None:
    """Give the project the workload and the settings that README shows, on main."""
    shell.writes("perf/workload.py", block_of_readme("# perf/workload.py"))
    shell.writes("perfgate.toml", block_of_readme("# perfgate.toml"))
    commit_all(shell, "Gate performance")


def commit_all(shell: Shell, subject: str) -> str:
    """Commit everything and return the commit."""
    shell.types(f"git add --all && git commit --quiet --message {shlex.quote(subject)}")
    return shell.types("git rev-parse HEAD").text.strip()


def block_of_readme(first_line: str) -> str:
    """Return the block of README that begins with a line, without that line."""
    blocks = re.findall(r"^```\w*\n(.*?)^```$", (ROOT / "README.md").read_text(), flags=re.MULTILINE | re.DOTALL)
    (found,) = [block for block in blocks if block.startswith(f"{first_line}\n")]
    return found.removeprefix(f"{first_line}\n")
