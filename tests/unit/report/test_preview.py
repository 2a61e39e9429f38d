"""The comment as a terminal shows it."""

from __future__ import annotations

import io

from rich.console import Console

from perfgate.judging.report.render.terminal import preview_comment

COMMENT = """<!-- perfgate:sticky v1 key=1 -->

## perfgate: FAIL – P50 `encoder/long` 6.8 % slower

| | metric |
|---|---|
| **FAIL** | P50 |

<details><summary>9 unchanged metrics</summary>

| metric | base |
|---|--:|
| gap | 5 µs |

</details>

<sub>Everything else is in report.html</sub>
"""


def test_preview_comment__folds_and_marker__closed_and_hidden() -> None:
    output = io.StringIO()
    preview_comment(COMMENT, Console(file=output, width=80))
    text = output.getvalue()
    assert "perfgate: FAIL – P50 encoder/long 6.8 % slower" in text
    assert "▸ 9 unchanged metrics" in text
    assert "5 µs" not in text
    assert "<" not in text
