"""Sixty planted histories: the origin of each movement, and the list of open regressions."""

from __future__ import annotations

import pytest

from tests.fakes.planted_histories import FURTHER, HISTORIES, Answer, PlantedHistory, answer_of, redrawn

# Movements of one metric alone are seldom put into the right class.
MOST_WRONG_ORIGINS = 1


@pytest.fixture(scope="module", params=[4, pytest.param(1, marks=pytest.mark.slow)])
def answers(request: pytest.FixtureRequest) -> dict[PlantedHistory, Answer]:
    """The answers on every fourth history, and on all."""
    return {history: answer_of(history) for history in HISTORIES[:: request.param]}


def test_planted_histories__their_origins__right_for_nearly_all(answers: dict[PlantedHistory, Answer]) -> None:
    wrong = [history.name for history, answer in answers.items() if not answer.has_right_origin]
    assert len(answers) in (15, 60)
    assert len(wrong) <= MOST_WRONG_ORIGINS, wrong


def test_planted_histories__open_regressions__exact_for_all(answers: dict[PlantedHistory, Answer]) -> None:
    wrong = [history.name for history, answer in answers.items() if not answer.is_exact]
    assert wrong == []


# A wild value right before a shift, on one of two machines and in both shapes of a workload; a drift that moves one workload
# four versions after the other; two wild values at the end in one shape and one of them in the other.
@pytest.mark.parametrize(("draw", "number"), [(32, 16), (43, 19), (84, 44), (93, 34), (94, 39), (39, 38), (64, 25)])
def test_planted_histories__noise_that_displaces_a_shift__open_list_is_exact(draw: int, number: int) -> None:
    answer = answer_of(redrawn(HISTORIES[number - 1], draw))
    assert answer.is_exact, answer
    assert answer.has_right_origin, answer


@pytest.mark.parametrize("history", FURTHER, ids=lambda history: history.name[3:])
def test_planted_histories__movements_close_together__each_regression_of_code_is_open(history: PlantedHistory) -> None:
    answer = answer_of(redrawn(history, draw=5))
    assert answer.is_exact, answer


def test_planted_histories__regressions_of_code__none_is_missing(answers: dict[PlantedHistory, Answer]) -> None:
    missing: list[str] = []
    for history, answer in answers.items():
        for version in history.is_open:
            if not any(abs(version - found) <= 1 for found in answer.open_versions):
                missing.append(f"{history.name}: {version}")
    assert missing == []
