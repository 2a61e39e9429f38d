import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from perfgate.document.schema import LENGTHS, load_schema, schema_path
from perfgate.errors import PerfgateError
from perfgate.flows.schemas import write_schemas

NAMES = ["run", "decision", "trend", "bisection", "config"]


def test_schemas__committed_files__are_what_the_records_generate(tmp_path: Path) -> None:
    write_schemas(tmp_path)
    for name in NAMES:
        fresh = (tmp_path / f"{name}.schema.json").read_text(encoding="utf-8")
        stored = schema_path(name).read_text(encoding="utf-8")
        assert _unordered(json.loads(stored)) == _unordered(json.loads(fresh)), (
            f"{name}: run `python -m perfgate.flows.schemas` and commit schemas/"
        )


def _unordered(schema: Any) -> Any:
    """Return a schema with the members of every union in one order: msgspec 0.19 names them in another than later ones."""
    if isinstance(schema, dict):
        members = {key: _unordered(value) for key, value in schema.items()}
        return {**members, "anyOf": sorted(members["anyOf"], key=json.dumps)} if "anyOf" in members else members
    return [_unordered(value) for value in schema] if isinstance(schema, list) else schema


@pytest.mark.parametrize("name", NAMES)
def test_load_schema__each__is_a_valid_schema_of_the_draft(name: str) -> None:
    schema = load_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"] == f"urn:perfgate:schema:{name}"


def test_load_schema__unknown_name__says_to_install_again() -> None:
    with pytest.raises(PerfgateError, match="install perfgate again"):
        load_schema("nothing")


@pytest.mark.parametrize("name", NAMES)
def test_schemas__every_record__closed_and_described(name: str) -> None:
    for title, record in load_schema(name)["$defs"].items():
        assert record["additionalProperties"] is False, title
        assert record["description"], title


def test_schemas__field_with_a_comment__described_by_it() -> None:
    fields = load_schema("run")["$defs"]["DeviceState"]["properties"]
    assert fields["temperature"]["description"] == "Degrees Celsius."
    assert fields["units"]["description"].startswith("The same for each unit that is counted separately")
    assert "description" not in fields["memory_total"]


@pytest.mark.parametrize(("record", "field"), LENGTHS)
def test_schemas__longer_texts__are_those_of_fields_that_exist(record: str, field: str) -> None:
    schema = load_schema("run")["$defs"][record]["properties"][field]
    lengths = [kind["maxLength"] for kind in (schema, *schema.get("anyOf", [])) if "maxLength" in kind]
    assert lengths == [LENGTHS[record, field]]


def test_schemas__every_text_array_and_number__bounded() -> None:
    unbounded = []

    def look(place: str, schema: object) -> None:
        if isinstance(schema, dict):
            needed = {"string": "maxLength", "array": "maxItems", "number": "maximum", "integer": "maximum"}
            kinds = schema.get("type", [])
            kinds = [kinds] if isinstance(kinds, str) else kinds
            unbounded.extend(place for kind in kinds if kind in needed and needed[kind] not in schema)
            for key, inner in schema.items():
                look(f"{place}.{key}", inner)
        elif isinstance(schema, list):
            for index, inner in enumerate(schema):
                look(f"{place}[{index}]", inner)

    for name in NAMES:
        look(name, load_schema(name))
    assert unbounded == []


def test_run_schema__first_lines__pinned_to_the_version() -> None:
    run = load_schema("run")["$defs"]["RunDocument"]
    assert run["properties"]["schema"] == {"const": "perfgate/run"}
    assert run["properties"]["schema_version"] == {"const": 1}
    assert run["required"][:2] == ["schema", "schema_version"]
