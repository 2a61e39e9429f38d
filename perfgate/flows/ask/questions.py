"""The questions: their names, arguments and answers, from which the commands, routes and tools are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from perfgate.document.answers import (
    ChangeExplanation,
    GateVerdicts,
    ProjectList,
    RunComparison,
    RunSuggestions,
)
from perfgate.document.trace import TopDocument
from perfgate.document.trend import TrendDocument
from perfgate.errors import ArgumentError
from perfgate.flows.ask import answers
from perfgate.flows.ask.answers import (
    ChangeArguments,
    CompareArguments,
    ListArguments,
    NoArguments,
    SuggestionArguments,
    TopArguments,
)
from perfgate.flows.ask.sources import Sources

Arguments = TypeVar("Arguments", bound=msgspec.Struct)
Answer = TypeVar("Answer", bound=msgspec.Struct)


@dataclass(frozen=True)
class Question(Generic[Arguments, Answer]):
    """``about`` describes the answer; its first sentence is a title. ``of_store`` is false for questions about recordings."""

    name: str
    about: str
    arguments: type[Arguments]
    answer: type[Answer]
    work_out: Callable[[Arguments, Sources], Answer]
    of_store: bool = True

    def schema(self) -> dict[str, Any]:
        """The JSON schema of the arguments, an object without references."""
        (described,), kinds = msgspec.json.schema_components(
            [self.arguments], ref_template="{name}"
        )
        schema: dict[str, Any] = kinds[described["$ref"]]
        for name in ("title", "description"):
            schema.pop(name, None)
        return schema

    def ask(
        self, values: Mapping[str, object], sources: Sources, *, as_text: bool = False
    ) -> Answer:
        """The answer. ``as_text``: the arguments are texts, of a command line or an address.

        Raises ArgumentError for wrong arguments, and the errors of the sources.
        """
        try:
            arguments = msgspec.convert(values, self.arguments, strict=not as_text)
        except msgspec.ValidationError as error:
            raise ArgumentError(
                "the question {name}: {error}", name=self.name, error=error
            ) from error
        return self.work_out(arguments, sources)


QUESTIONS: Mapping[str, Question[Any, Any]] = {
    question.name: question
    for question in (
        Question(
            "projects",
            "List the stored projects, each with its newest run, workloads, testbeds and branches.",
            NoArguments,
            ProjectList,
            answers.projects,
        ),
        Question(
            "regressions",
            "List the open regressions of main: what moved, by how much, since which commit, and how sure that is.",
            ListArguments,
            TrendDocument,
            answers.regressions,
        ),
        Question(
            "explain",
            "Explain a change of main by its first bad commit. All that it moved, the operators that run more often with the "
            "line that calls them, the possible commits, the conditions of the runs, and the next commands.",
            ChangeArguments,
            ChangeExplanation,
            answers.explain,
        ),
        Question(
            "compare",
            "Compare two stored runs, next to main's level. Without a difference or verdict, because they were not measured "
            "side by side; the command that decides is in the answer.",
            CompareArguments,
            RunComparison,
            answers.compare,
        ),
        Question(
            "suggest",
            "List optimizations to try, by the findings of a stored run.",
            SuggestionArguments,
            RunSuggestions,
            answers.suggest,
        ),
        Question(
            "gates",
            "Show the verdicts on changes, and whether they justify a gate that blocks.",
            ListArguments,
            GateVerdicts,
            answers.gates,
        ),
        Question(
            "top",
            "Rank the operators and kernels of a recording by time.",
            TopArguments,
            TopDocument,
            answers.top,
            of_store=False,
        ),
    )
}


def questions_for(sources: Sources) -> list[Question[Any, Any]]:
    """The questions that these sources can answer to their asker."""
    has_recordings = sources.recording is not None and sources.only is None
    questions: list[Question[Any, Any]] = []
    for question in QUESTIONS.values():
        if (sources.store is not None) if question.of_store else has_recordings:
            questions.append(question)
    return questions
