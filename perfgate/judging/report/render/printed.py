"""The text of a template in the terminal, line by line."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from perfgate.judging.report.text.media import BOLD, END

_COMMAND = "    "


def print_words(words: str, console: Console) -> None:
    """Print quotes in yellow, items of lists with a bullet, commands unwrapped, and no blank lines."""
    for line in words.splitlines():
        if line.startswith("- "):
            console.print(Padding(_emphasized(f"• {line[2:]}"), (0, 0, 0, 2)))
        elif line.startswith("> "):
            console.print(_emphasized(line[2:], "yellow"))
        elif line.startswith(_COMMAND):
            console.print(Text(line), soft_wrap=True)
        elif line.strip():
            console.print(_emphasized(line.rstrip()))


def _emphasized(words: str, style: str = "") -> Text:
    text = Text(style=style)
    for plain in words.split(BOLD):
        strong, _, rest = plain.rpartition(END)
        text.append(strong, "bold")
        text.append(rest)
    return text
