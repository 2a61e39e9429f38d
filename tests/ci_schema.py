"""The schemas of CI hosts that check-jsonschema brings along, checked in this process: starting Python costs more."""

from __future__ import annotations

import warnings
from pathlib import Path

from click.testing import CliRunner

_TRANSFORMS = {"vendor.gitlab-ci": ["--data-transform", "gitlab-ci"]}


def assert_valid(schema: str, *files: Path) -> None:
    """Assert that all files fit the built-in schema of that name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it uses what click 9 will lack
        from check_jsonschema import main

        options = ["--builtin-schema", schema, *_TRANSFORMS.get(schema, [])]
        done = CliRunner().invoke(main, [*options, *map(str, files)])
    assert done.exit_code == 0, done.output
    assert "ok -- validation done" in done.output
