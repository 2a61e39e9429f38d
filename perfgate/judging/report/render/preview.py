"""Show a comment in a terminal the way a forge renders it: folds closed, markup drawn, the hidden marker hidden."""

from __future__ import annotations

import re

from rich.console import Console
from rich.markdown import Markdown

_FOLD = re.compile(r"<details><summary>(.*?)</summary>.*?</details>", re.DOTALL)
_TAG = re.compile(r"</?sub>|<!--.*?-->", re.DOTALL)


def preview_comment(comment: str, console: Console) -> None:
    """Print a comment of ours; what its folds hold is left to the file."""
    folded = _FOLD.sub(lambda fold: f"▸ {fold.group(1)}\n", comment)
    console.print(Markdown(_TAG.sub("", folded)))
