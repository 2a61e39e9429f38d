"""Print a constraints file of the oldest dependencies that pyproject.toml promises: each at its lower bound.

It runs before anything is installed, so it reads the few lines it needs by itself.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
# What a user installs: the dependencies, and torch. The tools of the suite are taken as they come.
LISTS = re.compile(r"^(?:dependencies|cpu) = \[(.*?)\]", re.DOTALL | re.MULTILINE)
REQUIREMENT = re.compile(r'"([A-Za-z0-9._-]+)>=([0-9.]+)(?:"|;)')
QUOTED = re.compile(r'"[^"]*"')


def oldest(text: str) -> list[str]:
    """Return ``name==bound`` for every dependency. Raises ValueError for one without a lower bound."""
    quoted = [
        requirement
        for found in LISTS.finditer(text)
        for requirement in QUOTED.findall(_code(found[1]))
    ]
    bounds = [REQUIREMENT.match(requirement) for requirement in quoted]
    if not bounds or None in bounds:
        raise ValueError(
            f"every dependency needs one lower bound, NAME>=VERSION: {quoted}"
        )
    return [f"{bound[1]}=={bound[2]}" for bound in bounds if bound]


def _code(lines: str) -> str:
    return "\n".join(line.partition("#")[0] for line in lines.splitlines())


if __name__ == "__main__":
    sys.stdout.writelines(
        f"{line}\n" for line in oldest(PROJECT.read_text(encoding="utf-8"))
    )
