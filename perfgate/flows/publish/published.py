"""The publication on a change: the decision of its runner, or the decisions of several
testbeds as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import msgspec

from perfgate.document.decision import DecisionDocument, Verdict
from perfgate.document.files import write_document, write_text_atomically
from perfgate.document.joint import JointDecision, VerdictOnTestbed
from perfgate.document.message import Message
from perfgate.errors import EXIT_BUG, PerfgateError
from perfgate.judging.forge.comment import TEXT_BUDGET
from perfgate.judging.gate.verdict import exit_code, joint_verdict
from perfgate.judging.report.render.ci import status_line
from perfgate.judging.report.render.comment import CommentContext, render_comment
from perfgate.judging.report.render.testbeds import (
    MatrixColumn,
    render_column,
    render_joint_comment,
    render_joint_status,
)
from perfgate.version import __version__


@dataclass(frozen=True)
class JudgedArtifact:
    """The decision on one artifact with its comment, and its report page if there were
    documents to judge.

    ``accepts`` are the metrics of each cause numbered in the comment. ``error`` is the
    exception that made judging fail. ``testbed`` is "" in a gate of one runner; of a
    matrix ``device`` is the kind that perfgate.toml names for the testbed, and
    ``column`` its part of the joint comment.
    """

    decision: DecisionDocument
    context: CommentContext
    text: str = ""
    column: MatrixColumn | None = None
    page: str | None = None
    accepts: list[list[str]] = field(default_factory=list)
    error: Exception | None = None
    testbed: str = ""
    device: str | None = None

    @property
    def exit_code(self) -> int:
        if self.error is None:
            return exit_code(self.decision)
        if isinstance(self.error, PerfgateError):
            return self.error.exit_code
        return EXIT_BUG

    def worded(self, *, budget: int) -> JudgedArtifact:
        """The same with its text: the comment, or its part of a joint one, of at most
        ``budget`` characters.
        """
        if self.testbed:
            column = render_column(
                self.testbed, self.decision, self.context, budget=budget
            )
            return replace(self, column=column)
        return replace(
            self, text=render_comment(self.decision, self.context, budget=budget)
        )


@dataclass(frozen=True)
class Published:
    """The artifacts of all expected testbeds under one verdict, in the order of
    perfgate.toml, or the only runner's.

    ``budget`` is the number of characters that each may have of the comment, and
    ``context`` belongs to a joint comment.
    """

    artifacts: Sequence[JudgedArtifact]
    context: CommentContext
    budget: int = TEXT_BUDGET

    @property
    def is_joint(self) -> bool:
        return bool(self.artifacts[0].testbed)

    @cached_property
    def verdict(self) -> Verdict:
        return joint_verdict([artifact.decision.verdict for artifact in self.artifacts])

    @property
    def deciding(self) -> list[JudgedArtifact]:
        """The artifacts with the joint verdict."""
        return [
            artifact
            for artifact in self.artifacts
            if artifact.decision.verdict == self.verdict
        ]

    @property
    def exit_code(self) -> int:
        return max(artifact.exit_code for artifact in self.deciding)

    @property
    def error(self) -> Exception | None:
        """The error that ends the job; if another testbed shows a regression, the
        verdict does.
        """
        errors = (artifact.error for artifact in self.deciding if artifact.error)
        return next(errors, None)

    @property
    def accepts(self) -> list[list[str]]:
        """The metrics of the numbered causes; a joint comment has none, because every
        testbed counts its own.
        """
        if self.is_joint:
            return []
        return self.artifacts[0].accepts

    @property
    def text(self) -> str:
        if not self.is_joint:
            return self.artifacts[0].text
        return render_joint_comment(
            self._columns(), self.verdict, self.context, budget=TEXT_BUDGET
        )

    @property
    def status(self) -> str:
        """The text of the commit status."""
        if not self.is_joint:
            return status_line(self.artifacts[0].decision, self.context.language)
        return render_joint_status(self._columns(), self.verdict, self.context.language)

    def with_note(self, note: Message) -> str:
        """The comment with an additional note, on a matrix in the part of a testbed
        with the joint verdict.
        """
        first = self.deciding[0]
        warnings = [note, *first.decision.warnings]
        decision = msgspec.structs.replace(first.decision, warnings=warnings)
        noted = replace(first, decision=decision).worded(budget=self.budget)
        artifacts = list(self.artifacts)
        artifacts[artifacts.index(first)] = noted
        return replace(self, artifacts=artifacts).text

    def write(self, out: Path) -> None:
        """Write the results as judged here, for the job to upload: the comment links
        these, not the measuring job's results.

        Each testbed has a folder of its name.
        """
        for artifact in self.artifacts:
            folder = out / artifact.testbed
            folder.mkdir(parents=True, exist_ok=True)
            write_document(folder / "decision.json", artifact.decision)
            if artifact.page is not None:
                write_text_atomically(folder / "report.html", artifact.page)
        write_text_atomically(out / "comment.md", self.text)
        if self.is_joint:
            joint = JointDecision(
                perfgate_version=__version__,
                project=self.artifacts[0].decision.project,
                verdict=self.verdict,
                exit_code=self.exit_code,
                testbeds=[
                    VerdictOnTestbed(
                        testbed=artifact.testbed,
                        device=artifact.device,
                        verdict=artifact.decision.verdict,
                        exit_code=artifact.exit_code,
                        reasons=artifact.decision.reasons,
                        decision=f"{artifact.testbed}/decision.json",
                    )
                    for artifact in self.artifacts
                ],
            )
            write_document(out / "joint.json", joint)

    def _columns(self) -> list[MatrixColumn]:
        return [
            artifact.column
            for artifact in self.artifacts
            if artifact.column is not None
        ]
