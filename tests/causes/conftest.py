"""The command as a process of its own, as the end-to-end tests run it."""

from tests.end_to_end.conftest import perfgate  # noqa: F401 - the fixture
