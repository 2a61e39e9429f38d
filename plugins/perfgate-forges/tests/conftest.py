"""The command as a process and the repository of a publishing job, as perfgate's own tests have them."""

from tests.end_to_end.conftest import perfgate, project  # noqa: F401 - fixtures
