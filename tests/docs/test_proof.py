"""docs/proof.md names a test for every claim of the README, and every test that it names is there."""

from __future__ import annotations

import re

from tests.docs.blocks import ROOT

PAGE = (ROOT / "docs" / "proof.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def plain(text: str) -> str:
    """Leave out what a reader of the page does not see: targets of links, emphasis, pictures' marks, the bars of a table."""
    without_links = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", text)
    without_marks = without_links.replace("**", "").replace("|", "·")
    return " ".join(without_marks.strip("· -#").split())


def passages_of(readme: str) -> list[str]:
    """Every paragraph, list item, block of code and table."""
    passages: list[str] = []
    in_code, ended = False, True
    for line in readme.splitlines():
        is_fence = line.startswith("```")
        is_heading = line.startswith("#") and not in_code
        if is_fence or is_heading or (not line.strip() and not in_code):
            in_code = in_code != is_fence
            ended = True
        elif ended or (line.startswith("- ") and not in_code):
            passages.append(line)
            ended = False
        else:
            passages[-1] += f"\n{line}"
    return passages


def rows_of(section: str) -> list[tuple[str, str]]:
    """The cells of the table of a section: what is claimed, and what proves it."""
    table = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+) \| (.+) \|$", table, flags=re.MULTILINE)
    return [(plain(claim), proof) for claim, proof in rows[1:]]


def test_proof__every_row__names_tests_or_commands_that_are_there() -> None:
    lacking = []
    for claim, proof in rows_of("In one paragraph") + rows_of("The README, passage by passage"):
        tests = re.findall(r"\[(test_\w+)\]\(\.\./([\w/.-]+)\)", proof)
        commands = re.findall(r"`make ([a-z-]+)`", proof)
        if not tests and not commands:
            lacking.append((claim, "names no test"))
        lacking += [(claim, name) for name, file in tests if f"\ndef {name}(" not in (ROOT / file).read_text()]
        lacking += [(claim, name) for name in commands if f"\n{name}:" not in MAKEFILE]
    assert lacking == []


def test_proof__every_passage_of_the_readme__has_a_row() -> None:
    claims = [claim for claim, _ in rows_of("The README, passage by passage")]
    passages = passages_of(README)
    assert len(passages) > 25
    assert [passage for passage in passages if not any(begins(passage, claim) for claim in claims)] == []
    assert [claim for claim in claims if not any(begins(passage, claim) for passage in passages)] == []


def begins(passage: str, claim: str) -> bool:
    """Whether a passage begins with a claim, or one of its lines does: a row of a table, a command."""
    texts = [passage, *passage.splitlines()]
    return any(plain(text).startswith(claim) for text in texts)


def test_proof__every_journey__proves_something() -> None:
    files = sorted(file.name for file in (ROOT / "tests" / "journeys").glob("test_*.py"))
    files.remove("test_installation.py")
    assert [name for name in files if f"(../tests/journeys/{name})" not in PAGE] == []
