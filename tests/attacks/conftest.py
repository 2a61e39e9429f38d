"""What the attacks share."""

from __future__ import annotations

from tests.end_to_end.conftest import clone, made_clone, perfgate  # noqa: F401 - fixtures
from tests.end_to_end.publishing import github, gitlab, job, project  # noqa: F401 - fixtures
