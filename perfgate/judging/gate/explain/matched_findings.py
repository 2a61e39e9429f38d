"""Findings of base and head that are the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from perfgate.document.lines import split_line
from perfgate.document.run import Finding

# The most findings of one step about the same subject; a document may claim more.
_MOST = 200
# The evidence that identifies a finding; numbers and lines differ between runs of the same code, or move with it.
_SUBJECT = ("shape", "kind", "by", "reason", "name", "module", "kernel", "dtype", "stage")


def unmatched(before: Iterable[Finding], after: Iterable[Finding]) -> tuple[list[Finding], list[Finding]]:
    """The findings that the base alone has, and those that the head alone has.

    Two are the same by rule, shape and operator. Of several, those with the nearest lines are matched: a line moves when lines
    above it come or go.
    """
    of_base, of_head = _by_subject(before), _by_subject(after)
    for subject in of_base.keys() & of_head.keys():
        few, many = sorted((of_base[subject], of_head[subject]), key=len)
        _remove_matches(few, many)
    return _flat(of_base), _flat(of_head)


def _remove_matches(few: list[Finding], many: list[Finding]) -> None:
    """Remove the findings of the shorter list, each with the nearest of the longer; an exact line comes before a near one."""
    lines = {_line(finding) for finding in many}
    for finding in sorted(few[:_MOST], key=lambda finding: _line(finding) not in lines):
        many.pop(_nearest(_line(finding), many[:_MOST]))
    del few[:_MOST]


def _nearest(line: tuple[str, int], findings: Sequence[Finding]) -> int:
    """The position of the finding with the nearest line."""

    def distance(at: int) -> tuple[bool, int]:
        file, number = _line(findings[at])
        return file != line[0], abs(number - line[1])

    return min(range(len(findings)), key=distance)


def _by_subject(findings: Iterable[Finding]) -> dict[bytes, list[Finding]]:
    groups: dict[bytes, list[Finding]] = defaultdict(list)
    for finding in findings:
        groups[_subject(finding)].append(finding)
    return groups


def _subject(finding: Finding) -> bytes:
    # A pattern of several operators also names the heaviest, which noise decides.
    operator = "ops" if "ops" in finding.evidence else "op"
    values = [finding.evidence.get(name) for name in (*_SUBJECT, operator)]
    return msgspec.json.encode([finding.rule, *values])


def _line(finding: Finding) -> tuple[str, int]:
    return split_line(str(finding.evidence.get("line") or ""))


def _flat(groups: dict[bytes, list[Finding]]) -> list[Finding]:
    findings: list[Finding] = []
    for of_subject in groups.values():
        findings += of_subject
    return findings
