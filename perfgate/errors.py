"""Every deliberate error, each with the exit code it ends the command with."""

from __future__ import annotations

from perfgate.locale import Activity, sentence

EXIT_PASS = 0
EXIT_FAIL = 1
EXIT_USAGE = 2
EXIT_INCONCLUSIVE = 3
EXIT_MEASURING = 4
EXIT_BUG = 5
EXIT_INTERRUPTED = 130


class PerfgateError(Exception):
    """An expected error: its text has the mistake, its place, and the remedy.

    With ``values`` the text is a sentence with their places, as `sentence` takes it.
    The error's own text is English, which documents and other errors may quote;
    ``shown`` is in the language that is spoken where it is raised.
    """

    exit_code = EXIT_USAGE

    def __init__(self, english: str = "", /, **values: object) -> None:
        super().__init__(str(Activity(english, **values)))
        for name, value in values.items():
            if isinstance(value, PerfgateError):
                values[name] = value.shown
        self.shown: str = sentence(english, **values)


class UsageError(PerfgateError):
    """The command was called in a way that cannot work here."""


class ArgumentError(UsageError):
    """An argument of a question is missing, unknown or wrong."""


class ForbiddenError(UsageError):
    """The asker may not read it."""


class ConfigError(PerfgateError):
    """perfgate.toml is missing or invalid."""


class DocumentError(PerfgateError):
    """A run or decision document cannot be read, or is not one."""


class PluginError(PerfgateError):
    """Something that an installed package adds to perfgate cannot be used."""


class RepositoryError(PerfgateError):
    """Git cannot give us the commits to compare."""


class HostileRepositoryError(RepositoryError):
    """Git refuses to read the content of a commit: perfgate was called correctly."""

    exit_code = EXIT_MEASURING


class ForgeError(PerfgateError):
    """The forge was unreachable, refused, or returned an unexpected response: the
    action was not performed.
    """

    exit_code = EXIT_MEASURING


class ForgeSettingError(ForgeError):
    """The job's forge settings cannot be right: the address, the repository or the
    token. No request was sent.
    """

    exit_code = EXIT_USAGE


class ForgeGoneError(ForgeError):
    """The requested object does not exist (404): deleted in the meantime, or never
    visible to the token.
    """


class ForgeHasNoStatusesError(ForgeError):
    """The forge has no commit statuses that perfgate knows: none was refused, and no
    older one stands there.
    """


class ForgeHasNoArtifactsError(ForgeError):
    """The forge keeps no artifacts of CI jobs: they are wherever the CI keeps them."""


class ForgeTooLargeError(ForgeError):
    """The forge sends more than the requested object can have."""


class ForgeUnansweredError(ForgeError):
    """Something was sent and no word of it came back: it may or may not be done, so
    look before doing it again.
    """


class StoreError(PerfgateError):
    """The store of baselines cannot be opened, read or written."""


class OlderStoreError(StoreError):
    """An older perfgate wrote the tables of the store; a write brings them up to date."""


class UnknownRunError(StoreError):
    """No stored run, or more than one, has this id."""


class UnfitRunError(StoreError):
    """The run must not become the baseline."""


class SessionKeptError(StoreError):
    """Another document of the session is stored already."""


class StoreRefusedError(StoreError):
    """The server that keeps the store cannot be reached, or refuses; perfgate was
    called correctly.
    """

    exit_code = EXIT_MEASURING


class StoreUnreachableError(StoreRefusedError):
    """The server that keeps the store did not answer, or cannot answer at present; the
    same request may succeed later.
    """


class InconclusiveError(PerfgateError):
    """The evidence is inconclusive."""

    exit_code = EXIT_INCONCLUSIVE


class MeasuringError(PerfgateError):
    """The measuring itself failed: device, workload or an unfit machine."""

    exit_code = EXIT_MEASURING


class ClusterRefusedError(PerfgateError):
    """The cluster cannot be reached or cannot run our tasks; perfgate was called
    correctly.
    """

    exit_code = EXIT_MEASURING


class MachineBusyError(MeasuringError):
    """Others had the machine for as long as we would wait."""


class SetUpError(PerfgateError):
    """The project's workload cannot be measured as it is set up."""


class StackError(PerfgateError):
    """An environment cannot be made as requested, often for the last error of pip or of
    the project's setup.
    """


class ResultsError(MeasuringError):
    """A benchmark program's output cannot be read, or is not of this run."""
