"""The fake's own answers against the official API description, where one is among the recordings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fakes.answers import filled, records
from tests.fakes.forge_dialects import GitHubDialect
from tests.fakes.openapi import load_slice

if TYPE_CHECKING:
    from tests.fakes.openapi_slice import Slice


@pytest.fixture
def description() -> Slice:
    found = load_slice(GitHubDialect.slice_file)
    if found is None:
        pytest.skip("no official API description of GitHub is among the recordings")
    return found


@pytest.mark.recordings
def test_records__official_schema__every_one_is_whole_and_legal(description: Slice) -> None:
    described = {name: record for name, record in records().items() if description.describes(name)}
    assert set(records()) - set(described) == {"branch"}
    errors = [f"{name}: {error}" for name in described for error in description.schema_errors(name, described[name])]
    assert errors == []


@pytest.mark.recordings
def test_schema_errors__field_missing_or_of_another_type__named(description: Slice) -> None:
    issue = filled("issue", {"number": "seven"})
    del issue["comments"]
    errors = description.schema_errors("issue", issue)
    assert len(errors) == 2
    assert any("'comments' is a required property" in error for error in errors)
    assert any(error.startswith("$.number") for error in errors)


def test_filled__value_inside_a_record__the_rest_of_it_stays() -> None:
    pull = filled("pull-request", {"number": 9, "head": {"sha": "a" * 40, "repo": {"full_name": "mallory/model"}}})
    assert (pull["number"], pull["title"], pull["additions"]) == (9, "a change", 1)
    assert pull["head"]["repo"]["full_name"] == "mallory/model"
    assert pull["head"]["repo"]["owner"]["login"] == "team"
    assert pull["base"]["repo"]["full_name"] == "team/model"
    assert filled("pull-request", {"merged_by": None, "head": None})["head"] is None
