"""A real forge member between whose calls others act: what they do comes as a function that is told each call."""

from __future__ import annotations

from collections.abc import Callable

from perfgate.judging.forge.forge import ChangeRequest, Comment, CommitStatus, Forge


class Meddled:
    """Passes every call on, after ``before`` was called with its name."""

    def __init__(self, forge: Forge, before: Callable[[str], None]) -> None:
        self._forge = forge
        self._before = before

    def find_change_request(self) -> ChangeRequest | None:
        self._before("find_change_request")
        return self._forge.find_change_request()

    def comments(self, number: int) -> list[Comment]:
        self._before("comments")
        return self._forge.comments(number)

    def add_comment(self, number: int, body: str) -> None:
        self._before("add_comment")
        self._forge.add_comment(number, body)

    def edit_comment(self, number: int, comment_id: int, body: str) -> None:
        self._before("edit_comment")
        self._forge.edit_comment(number, comment_id, body)

    def delete_comment(self, number: int, comment_id: int) -> None:
        self._before("delete_comment")
        self._forge.delete_comment(number, comment_id)

    def set_status(self, status: CommitStatus) -> None:
        self._before("set_status")
        self._forge.set_status(status)
