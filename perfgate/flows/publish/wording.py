"""From the decision on an artifact to its comment, and to its report page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from perfgate.document.decision import DecisionDocument
from perfgate.document.kept import REPORT_PAGE
from perfgate.flows.publish.artifact import ReadArtifact
from perfgate.flows.publish.evidence import evidence_pages
from perfgate.flows.publish.keeping import CheckKeeper
from perfgate.flows.publish.orders import obeys_comments, orders_to_accept
from perfgate.flows.publish.published import JudgedArtifact
from perfgate.flows.publish.trusted import TrustedInputs
from perfgate.flows.shared.ci_artifact import DEFAULT_KEY, key_of
from perfgate.git.commands import COMMIT_ID
from perfgate.git.repository import prefix_of
from perfgate.judging.forge.comment import can_hold, marker
from perfgate.judging.forge.forge import CiEvent, line_address
from perfgate.judging.report.render.ci import parse_location
from perfgate.judging.report.render.comment import CommentContext, accepting_metrics
from perfgate.judging.report.render.html import render_html
from perfgate.locale import Language


@dataclass(frozen=True)
class Wording:
    """Words the decisions of one publication.

    ``key`` is the gate's and ``name`` the comment's, which may be about one workload. ``writes_pages`` is whether report pages
    are written besides those that ``keeper`` keeps; ``budget`` is the number of characters of each artifact in the comment.
    """

    trusted: TrustedInputs
    key: str
    name: str
    language: Language
    writes_pages: bool
    keeper: CheckKeeper | None
    budget: int

    def word(self, decision: DecisionDocument, artifact: ReadArtifact) -> JudgedArtifact:
        """Render the comment on a decision, with the addresses of its evidence, and its report page."""
        if decision.procedure.name == "none":  # nothing was judged, so there is nothing to show or to accept
            return self.word_undecided(decision, artifact)
        context, documents = self._with_evidence(decision, artifact), artifact.documents
        context, accepts = self._with_orders(context, decision, artifact)
        page = None
        if documents is not None and (self.writes_pages or self.keeper):
            page = render_html(decision, documents.base, documents.head, self.language)
        if self.keeper is not None and page is not None:
            addresses = self.keeper.keep(decision, artifact, page)
            # CI removes its artifacts after some weeks.
            report_url = addresses.get(REPORT_PAGE, context.report_url)
            context = replace(context, pages={**context.pages, **addresses}, report_url=report_url)
        judged = JudgedArtifact(
            decision, context, page=page, accepts=accepts, testbed=artifact.testbed, device=artifact.device
        )
        return judged.worded(budget=self.budget)

    def word_undecided(self, decision: DecisionDocument, artifact: ReadArtifact) -> JudgedArtifact:
        """Render the comment on a decision without a judgement."""
        context = self.context(decision.base.commit)
        judged = JudgedArtifact(decision, context, testbed=artifact.testbed, device=artifact.device)
        return judged.worded(budget=self.budget)

    def context(self, base: str | None = None) -> CommentContext:
        """The addresses in a comment; ``base`` is the commit with which somebody can measure the same."""
        event = self.trusted.event
        is_commit = base is not None and COMMIT_ID.fullmatch(base)
        return CommentContext(
            marker=marker(self.name),
            artifact_url=event.artifact_url if event else None,
            report_url=event.report_url if event else None,
            job_url=event.job_url if event else None,
            source=_addresses(event, self.trusted.root) if event else None,
            reproduce=f"perfgate check --base {base[:12]} --out perfgate-out" if base and is_commit else None,
            language=self.language,
        )

    def _with_evidence(self, decision: DecisionDocument, artifact: ReadArtifact) -> CommentContext:
        context, target = self.context(decision.base.commit), self.trusted.target
        if target is None or not decision.links:
            return context
        key = key_of(self.key, artifact.testbed)
        return replace(context, pages=evidence_pages(target.forge, target.event, key, decision.links))

    def _with_orders(
        self, context: CommentContext, decision: DecisionDocument, artifact: ReadArtifact
    ) -> tuple[CommentContext, list[list[str]]]:
        """The context with the orders that accept a cause, and the metrics of the numbered causes."""
        if not obeys_comments(self.trusted):
            return context, []
        accepts = accepting_metrics(decision)
        # Numbers only work in the one comment that `perfgate command` reads, and if one testbed counts its causes there.
        is_numbered = self.name == DEFAULT_KEY and not artifact.testbed and can_hold(accepts)
        context = replace(context, accept_order=orders_to_accept(self.trusted, is_numbered=is_numbered))
        return context, accepts if is_numbered else []


def _addresses(event: CiEvent, root: Path) -> Callable[[str], str | None]:
    """A function from a source line of the head, relative to the project's folder, to its page on the forge."""
    prefix = prefix_of(root)

    def address(line: str) -> str | None:
        location = parse_location(line)
        return location and line_address(event, prefix + location.path, location.line)

    return address
