"""The fenced blocks of our pages, each with the setting that it is shown in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
# Before a block may stand `<!-- test: SETTING -->`, with `exit N or M` where the commands do not end with 0 alone, and `slow`.
_BLOCK = re.compile(
    r"^(?:<!-- test: (?P<words>.+?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_NOT_RUN = "not run: "
DESK = "desk"


@dataclass(frozen=True)
class Block:
    """``not_run`` is the reason why it cannot be executed here."""

    page: str
    line: int
    language: str
    text: str
    setting: str = DESK
    exit_codes: tuple[int, ...] = (0,)
    is_slow: bool = False
    not_run: str = ""

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    return sorted(path.name for path in DOCS.glob("*.md"))


def read_blocks(page: str) -> list[Block]:
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = [_block(page, text[: match.start()].count("\n") + 1, match) for match in _BLOCK.finditer(text)]
    assert 2 * len(blocks) == len(re.findall(r"^```", text, flags=re.MULTILINE)), (
        f"{page}: a fence that is not understood"
    )
    return blocks


def _block(page: str, line: int, match: re.Match[str]) -> Block:
    words = match["words"] or DESK
    block = Block(page, line, match["language"], match["text"])
    if words.startswith(_NOT_RUN):
        return Block(**{**vars(block), "not_run": words[len(_NOT_RUN) :]})
    setting, *options = words.split(", ")
    codes = [int(code) for option in options for code in re.findall(r"\d", option)] or [0]
    unknown = [option for option in options if option != "slow" and not re.fullmatch(r"exit \d( or \d)?", option)]
    assert not unknown, f"{block.name}: {unknown} says nothing to the test"
    return Block(**{**vars(block), "setting": setting, "exit_codes": tuple(codes), "is_slow": "slow" in options})
