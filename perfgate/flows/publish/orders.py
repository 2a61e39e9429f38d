"""Whether the project's CI obeys ``/perfgate`` comments, and the orders that accept a cause."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from perfgate.flows.publish.trusted import TrustedInputs
from perfgate.git.repository import prefix_of
from perfgate.judging.forge.orders import CommentForge, OrderForge, accept_order, numbered_order

# Set by the GitLab template if a webhook brings comments to `perfgate command`.
COMMANDS_VARIABLE = "PERFGATE_COMMANDS"
_YAML_COMMENT = re.compile(r"(?:^|\s)#.*")
# perfgate's reusable workflow, or the command in a hand-written job.
_OBEYS = re.compile(r"/workflows/trusted\.ya?ml\b|\bperfgate command\b")


def obeys_comments(trusted: TrustedInputs) -> bool:
    """Whether ``/perfgate`` comments are obeyed: the forge supports orders, and a workflow of the checkout handles them.

    If the checkout has no workflows and this job runs in GitHub Actions, the workflows are kept elsewhere and count as
    obeying. On GitLab the template says so, because a webhook has to be set up.
    """
    if trusted.target is None:
        return False
    forge = trusted.target.forge
    if not isinstance(forge, OrderForge):
        return False
    if isinstance(forge, CommentForge):
        return trusted.environ.get(COMMANDS_VARIABLE) == "true"
    workflows = _workflows(trusted.root)
    if not workflows:
        return trusted.environ.get("GITHUB_ACTIONS") == "true"
    return any(map(_obeys, workflows))


def orders_to_accept(trusted: TrustedInputs, *, is_numbered: bool) -> Callable[[int, Sequence[str]], str | None]:
    """A function from a cause to the order to accept it: by its number, whose metrics the comment's state has, or by metrics.

    With a number it names the commit of a fork alone, because the fork's owner can move its head.
    """
    assert trusted.event is not None, "orders are read from comments of a forge"
    head = trusted.event.head_sha
    from_fork = trusted.change is None or trusted.change.from_fork is not False

    def order(number: int, metrics: Sequence[str]) -> str | None:
        return numbered_order(number, head if from_fork else None) if is_numbered else accept_order(head, metrics)

    return order


def _workflows(root: Path) -> list[str]:
    folder = root.joinpath(*[".."] * prefix_of(root).count("/"), ".github", "workflows")
    return [file.read_text("utf-8", "replace") for file in (*folder.glob("*.yml"), *folder.glob("*.yaml"))]


def _obeys(workflow: str) -> bool:
    said = _YAML_COMMENT.sub("", workflow)
    return "issue_comment" in said and "perfgate" in said and _OBEYS.search(said) is not None
