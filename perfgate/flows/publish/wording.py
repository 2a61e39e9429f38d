"""From the decision on an artifact to its comment, and to its report page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from perfgate.document.decision import DecisionDocument
from perfgate.document.kept import REPORT_PAGE
from perfgate.document.run import Artifact
from perfgate.errors import ForgeError
from perfgate.flows.publish.artifacts import CheckKeeper, ReadArtifact
from perfgate.flows.publish.published import JudgedArtifact
from perfgate.flows.publish.trusted import PublishRequest, TargetForge, TrustedInputs
from perfgate.flows.shared.ci_artifact import DEFAULT_KEY, key_of, newest
from perfgate.git.commands import COMMIT_ID
from perfgate.git.repository import prefix_of
from perfgate.judging.forge.comment import TEXT_BUDGET, can_hold, marker
from perfgate.judging.forge.forge import line_address
from perfgate.judging.forge.orders import (
    CommentForge,
    OrderForge,
    accept_order,
    numbered_order,
)
from perfgate.judging.report.render.ci import parse_location
from perfgate.judging.report.render.comment import CommentContext, accepting_metrics
from perfgate.judging.report.render.html import render_html
from perfgate.judging.report.render.testbeds import section_budget

# Set by the GitLab template if a webhook brings comments to `perfgate command`.
COMMANDS_VARIABLE = "PERFGATE_COMMANDS"
_YAML_COMMENT = re.compile(r"(?:^|\s)#.*")
# perfgate's reusable workflow, or the command in a hand-written job.
_OBEYS = re.compile(r"/workflows/trusted\.ya?ml\b|\bperfgate command\b")
# The folder of the measuring job that GitLab stores file by file.
_FOLDER = "perfgate-out"
# A path inside it that needs no escaping and leads nowhere else.
_PLAIN_PATH = re.compile(r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._/-]*")


@dataclass(frozen=True)
class Wording:
    """Words the decisions of one publication.

    ``keeper`` keeps report pages and recordings, None if the project keeps none; a page
    is made for it, or for the folder that is asked for. ``budget`` is the number of
    characters of each artifact in the comment.
    """

    request: PublishRequest
    trusted: TrustedInputs
    keeper: CheckKeeper | None = None
    budget: int = TEXT_BUDGET

    def for_artifacts(self, artifacts: Sequence[ReadArtifact]) -> Wording:
        """The same; the testbeds of a matrix share the room of the comment."""
        if artifacts[0].testbed:
            return replace(self, budget=section_budget(len(artifacts), TEXT_BUDGET))
        return self

    def word(
        self, decision: DecisionDocument, artifact: ReadArtifact
    ) -> JudgedArtifact:
        """Render the comment on a decision, with the addresses of its evidence, and its
        report page.
        """
        judged = JudgedArtifact(
            decision,
            self.context(decision.sides.base.commit),
            testbed=artifact.testbed,
            device=artifact.device,
        )
        # Without a judgement, there is no evidence and no cause.
        if decision.procedure.name != "none":
            judged = self._with_evidence(judged, artifact)
        return judged.worded(budget=self.budget)

    def _with_evidence(
        self, judged: JudgedArtifact, artifact: ReadArtifact
    ) -> JudgedArtifact:
        """With the addresses of the evidence, the orders to accept, and the report
        page.
        """
        decision, context = judged.decision, judged.context
        request, trusted = self.request, self.trusted
        if trusted.target is not None and decision.measured.links:
            pages = _evidence_pages(
                trusted.target,
                key_of(request.key, artifact.testbed),
                decision.measured.links,
            )
            context = replace(context, pages=pages)
        accepts: list[list[str]] = []
        if obeys_comments(trusted):
            accepts = accepting_metrics(decision)
            # Numbers only work in the comment that `perfgate command` reads, and if one
            # testbed counts its causes there.
            is_numbered = (
                request.name == DEFAULT_KEY
                and not artifact.testbed
                and can_hold(accepts)
            )
            order = _orders_to_accept(trusted, is_numbered=is_numbered)
            context = replace(context, accept_order=order)
            if not is_numbered:
                accepts = []
        page, documents = None, artifact.documents
        if documents is not None and (request.out or self.keeper):
            page = render_html(
                decision, documents.base, documents.head, request.language
            )
        if self.keeper is not None and page is not None:
            addresses = self.keeper.keep(decision, artifact, page)
            # CI removes its artifacts after some weeks.
            report_url = addresses.get(REPORT_PAGE, context.report_url)
            context = replace(
                context, pages={**context.pages, **addresses}, report_url=report_url
            )
        return replace(judged, context=context, page=page, accepts=accepts)

    def context(self, base: str | None = None) -> CommentContext:
        """The addresses in a comment; ``base`` is the commit to reproduce the
        comparison with.
        """
        reproduce = None
        if base and COMMIT_ID.fullmatch(base):
            reproduce = f"perfgate check --base {base[:12]} --out perfgate-out"
        context = CommentContext(
            marker=marker(self.request.name),
            reproduce=reproduce,
            language=self.request.language,
        )
        event = self.trusted.event
        if event is None:
            return context
        prefix = prefix_of(self.trusted.root)

        def address(line: str) -> str | None:
            """The page of a source line, which is relative to the project's folder."""
            place = parse_location(line, prefix)
            return place and line_address(event, place.path, place.line)

        return replace(
            context,
            artifact_url=event.job.artifact_url,
            report_url=event.job.report_url,
            job_url=event.job.job_url,
            source=address,
        )


def obeys_comments(trusted: TrustedInputs) -> bool:
    """Whether ``/perfgate`` comments are obeyed: the forge supports orders, and a
    workflow of the checkout handles them.

    If the checkout has no workflows and this job runs in GitHub Actions, the workflows
    are kept elsewhere and count as obeying. On GitLab the template sets a variable,
    because a webhook has to be set up.
    """
    if trusted.target is None:
        return False
    forge = trusted.target.forge
    if not isinstance(forge, OrderForge):
        return False
    if isinstance(forge, CommentForge):
        return trusted.environ.get(COMMANDS_VARIABLE) == "true"
    top = trusted.root.joinpath(*[".."] * prefix_of(trusted.root).count("/"))
    folder = top / ".github" / "workflows"
    workflows = [*folder.glob("*.yml"), *folder.glob("*.yaml")]
    if not workflows:
        return trusted.environ.get("GITHUB_ACTIONS") == "true"
    for file in workflows:
        text = _YAML_COMMENT.sub("", file.read_text("utf-8", "replace"))
        if "issue_comment" in text and "perfgate" in text and _OBEYS.search(text):
            return True
    return False


def _orders_to_accept(
    trusted: TrustedInputs, *, is_numbered: bool
) -> Callable[[int, Sequence[str]], str | None]:
    """A function from a cause to the order to accept it: by its number, if the
    comment's state has its metrics, or by metrics.

    With a number it names the commit of a fork alone, because the fork's owner can move
    its head.
    """
    assert trusted.event is not None, "orders are read from comments of a forge"
    head = trusted.event.head_sha
    from_fork = trusted.change is None or trusted.change.from_fork is not False

    def order(number: int, metrics: Sequence[str]) -> str | None:
        if is_numbered:
            return numbered_order(number, head if from_fork else None)
        return accept_order(head, metrics)

    return order


def _evidence_pages(
    target: TargetForge, key: str, links: Iterable[Artifact]
) -> Mapping[str, str]:
    """The URL of every stored file that has one, by path; empty if the forge lists no
    artifacts.

    The URLs come from the forge's list of artifacts, not from the artifacts. A forge
    that stores an archive file by file has a URL for each. On the others a flame graph
    is a separate artifact, which opens in the browser, and a trace is in the archive of
    the traces.
    """
    try:
        artifacts = target.forge.artifacts()
    except ForgeError:
        return {}
    prefix, attempt = f"perfgate-{key}-", target.event.job.run_attempt
    documents = newest(artifacts, prefix, attempt)
    flame = newest(artifacts, prefix, attempt, suffix="-flame.html")
    traces = newest(artifacts, prefix, attempt, suffix="-traces")
    pages: dict[str, str] = {}
    for link in links:
        stored = flame if link.kind == "flamegraph" else traces
        if documents and documents.files_url and _PLAIN_PATH.fullmatch(link.path):
            pages[link.path] = f"{documents.files_url}{_FOLDER}/{link.path}"
        elif stored and stored.url and not stored.files_url:
            pages[link.path] = stored.url
    return pages
