"""Which of the changed code a check saw running, in calls that were not timed."""

from __future__ import annotations

from typing import Literal

from perfgate.document.message import Message
from perfgate.document.records import FrozenStruct

# ``definition``: only its definition ran, at import. ``unknown``: it may run where
# lines are not seen.
Executed = Literal["yes", "definition", "no", "unknown"]


class ChangedFunction(FrozenStruct, kw_only=True):
    """A function that the head changed, added or removed; without a name, the code of a
    file outside functions.

    ``line`` is its first changed line, of the head (``model.py:88``), or of the base if
    ``side`` is ``base``. ``workloads`` are those that run it.
    """

    line: str
    function: str = ""
    side: Literal["base", "head"] = "head"
    executed: Executed
    workloads: list[str] = []


class Coverage(FrozenStruct, kw_only=True):
    """The changed code that the workloads of a check run, from the executed lines of
    both sides.

    ``files`` are the changed files that were looked at, documents included. ``doubts``
    are the reasons why code may have run, or text been read, unseen; if there is any,
    the measurement is not shortened. ``calls`` are the fewest that a workload made.
    ``nearest`` are tests and workloads that are close to the functions that did not
    run.
    """

    files: list[str]
    functions: list[ChangedFunction] = []
    doubts: list[Message] = []
    calls: int = 0
    nearest: list[str] = []

    @property
    def runs_nothing(self) -> bool:
        """Whether it is shown that no workload runs the changed code, or reads the
        changed text.
        """
        return not self.doubts and all(
            function.executed == "no" for function in self.functions
        )

    @property
    def executed(self) -> list[ChangedFunction]:
        return [function for function in self.functions if function.executed == "yes"]

    @property
    def not_executed(self) -> list[ChangedFunction]:
        return [function for function in self.functions if function.executed != "yes"]
