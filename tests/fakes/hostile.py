"""Names that attack every dialect of Markdown a forge speaks, and HTML, terminals and readers; from a seed."""

from __future__ import annotations

import random

# What means something: to cmark-gfm and comrak, to the filters GitHub and GitLab run behind them, to GitLab's and Gitee's bots.
ATOMS = (
    "|", "\\|", "`", "``", "```", "````", "~~~", "\n", "\r\n", "\r", "\n\n", "<", ">", "</details>", "</summary>", "</sub>",
    "<img src=x onerror=alert(1)>", "<script>", "-->", "<!--", "<!-- perfgate:sticky v1 -->", "<![CDATA[", "<?php", "<a@b.c>",
    "@octocat", "@team/all", "a@b.example", "\n/approve", "/merge\n", "/lgtm", "\n/close", "\t/label ~bug", "[x](https://evil.example)",
    "![x](https://evil.example/p.png)", "[x]: https://evil.example", "[^1]", "[^1]: note", "[[wiki]]", "https://evil.example/",
    "http://evil.example", "www.evil.example", "ftp://evil.example", "mailto:a@b.example", "#1", "!1", "&1", "%1", "~bug", "$1",
    "GH-12", "team/model#12", "team/model!12", "team/model@0123456789abcdef", "0123456789abcdef0123456789abcdef01234567",
    "*", "**", "_", "__", "~", "~~", "$", "$$", "$`x`$", "\\", "\\\\", "&#64;octocat", "&lt;b&gt;", "&nbsp;", "&commat;all",
    "\u202e", "\u2066", "\u200b", "\u200d", "\ufeff", "\u00ad", "\x00", "\x07", "\x1b[31m", "\x1b]8;;https://evil.example\x07",
    "\x85", "\u2028", "\u2029", "\ud800", "\udfff", "\ue000", "\U000e0041", "\ufffe", "\u0301", "\u034f",
    "# h", "\n# h", "\n## h", "- ", "\n- [x] done", "+ ", "* ", "1. ", "\n1) ", "\n> quote", "\n> [!WARNING]", "    code",
    "---", "\n===", "|---|", "| a | b |", ":smile:", ":+1:", ":octocat:", "{{ 1 }}", "{% raw %}", "{name}", "%s", "{0}",
    "::error::x", "##[error]x", "```mermaid\ngraph", "<details open>", "<table>", "<br>", "H~2~O", "x^2^", "{+a+}", "[-b-]",
    "🏎️", "👩‍👩‍👧", "🇩🇪", "名", "名前", "算子", "العربية", "עברית", "é", "ﷺ", "aten::add", "model.py:88", "a b", " ", "  ", "x",
)  # fmt: skip
_RANGES = (
    (0x20, 0x7F),
    (0x00, 0x20),
    (0xA0, 0x250),
    (0x2000, 0x2070),
    (0x4E00, 0x9FFF),
    (0xD800, 0xE000),
    (0x1F300, 0x1F6FF),
)


def hostile_names(count: int, seed: int) -> list[str]:
    """Return names of one to nine pieces; one in a hundred is very long."""
    chance = random.Random(seed)
    return [_name(chance) for _ in range(count)]


def _name(chance: random.Random) -> str:
    pieces = [_piece(chance) for _ in range(chance.randint(1, 9))]
    return "".join(pieces) * (200 if chance.random() < 0.01 else 1)


def _piece(chance: random.Random) -> str:
    if chance.random() < 0.75:
        return chance.choice(ATOMS)
    low, high = chance.choice(_RANGES)
    return "".join(chr(chance.randrange(low, high)) for _ in range(chance.randint(1, 5)))
