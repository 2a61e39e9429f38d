"""The messages between conductor and worker: length-prefixed JSON over a separate
socket.

User code's output can never reach this socket, and so can never be mistaken for a
result.
"""

from __future__ import annotations

import select
import signal
import socket
import struct
from functools import reduce
from operator import or_
from typing import Any, Literal

import msgspec

from perfgate.document.budget import Budget
from perfgate.document.doctor import FitnessCheck
from perfgate.document.message import Message
from perfgate.document.run import (
    Artifact,
    CallAccount,
    CorrectnessResult,
    CounterSet,
    ErrorDetail,
    OperatorRow,
    StepResult,
)
from perfgate.document.samples import BlockColumns, KernelBlocks
from perfgate.document.sweep import Sweep
from perfgate.document.testbed import Testbed
from perfgate.system.walls import Room

MAX_MESSAGE_BYTES = 512 * 1024 * 1024
_CHUNK = 1 << 20
# On this signal a worker writes its Python stack. A real-time one: those have no other
# meaning to user code.
STACK_SIGNAL = signal.SIGRTMAX - 3
_HEADER = struct.Struct("<I")

# The content of a timed block: calls of the model on ready inputs, or preprocessing
# alone.
Lane = Literal["call", "preprocess"]


class WorkerRequest(msgspec.Struct, frozen=True, tag=True):
    """A request from the conductor to a worker; each kind is a subclass, and its name
    the tag of the message.
    """


class Reply(msgspec.Struct, frozen=True, tag=True):
    """A worker's answer."""


class ServerMessage(msgspec.Struct, frozen=True, tag=True):
    """A message from the fork server to the conductor."""


class ServerRequest(msgspec.Struct, frozen=True, tag=True):
    """A request from the conductor to the fork server about a worker."""

    worker_id: int


class ForkRequest(ServerRequest, frozen=True):
    """Fork a worker; its socket comes with this message as a file descriptor.

    The worker's output goes to ``log_path``; the Python stack of a crash or hang to
    ``stack_path``. ``home`` is its home, its folder for temporary files and, until it
    loads a workload of the checkout at ``root``, its current one. A worker of a side
    lives in its ``room`` and has the ``variables`` of that side in addition to the
    server's. ``looks_at_itself`` is whether libraries of the device read about their
    own process in /proc. With ``builds`` the process is not a worker but a further fork
    server, which builds that workload on the host: its workers have the model.
    """

    layout_seed: int
    cpus: list[int]
    log_path: str
    stack_path: str
    home: str
    root: str | None = None
    memory_limit: int | None = None
    room: Room | None = None
    variables: dict[str, str] = {}
    looks_at_itself: bool = True
    builds: LoadRequest | None = None


class AdoptRequest(ServerRequest, frozen=True):
    """Worker ``warm_id`` has forked process ``pid``, which is that worker now.

    The process that forked it is worker ``worker_id`` from here on.
    """

    warm_id: int
    pid: int


class Forked(ServerMessage, frozen=True):
    """The worker's process id, which is its process group id too."""

    worker_id: int
    pid: int


class ForkFailed(ServerMessage, frozen=True):
    """The kernel refused another process."""

    worker_id: int
    error: ErrorDetail


class Exited(ServerMessage, frozen=True):
    """A worker ended, with its exit code (negative: the signal that ended it).

    ``left_behind`` are the names of the processes it had started that were still
    running, and ``of_unknown`` the names of processes that any worker may have started;
    all of them are killed.
    """

    worker_id: int
    exit_code: int
    left_behind: list[str] = []
    of_unknown: list[str] = []


class Resumed(ServerMessage, frozen=True):
    """A worker had been stopped by a signal, and goes on."""

    worker_id: int


class ServerReady(ServerMessage, frozen=True):
    """Everything is imported."""


class ServerFailed(ServerMessage, frozen=True):
    """An import failed."""

    error: ErrorDetail


class HarnessRequest(WorkerRequest, frozen=True):
    """Import a workload file and describe it; without building it.

    The fields are LoadRequest's.
    """

    name: str
    file: str
    attribute: str
    root: str
    python_path: list[str]


class HarnessReply(Reply, frozen=True):
    """The description of a workload file: each shape with its arguments as text, each
    function with a hash of its code.
    """

    batch: int
    batch_sizes: list[int]
    shapes: dict[str, str]
    functions: dict[str, str]
    sla_p99: float | None


class Watched(msgspec.Struct, frozen=True):
    """The changed files of a side, by their paths: executed lines and readers of these
    are reported.

    ``roots`` are the checkouts. ``tails`` are their paths below a folder of the import
    path, by which a copy of one is recognised that is loaded from another place.
    ``folders`` hold added or removed files. ``groups`` are the lines of each changed
    statement as number of the file and line: once one of each has run, the search is
    complete.
    """

    files: list[str]
    roots: list[str]
    tails: list[str] = []
    folders: list[str] = []
    groups: list[list[tuple[int, int]]] = []


class LoadRequest(WorkerRequest, frozen=True):
    """Load and build a workload.

    ``file`` is the workload file, ``root`` the checkout of the imported code.

    With a ``layout_seed`` the memory that it is loaded into is scattered at random. A
    trial may ``watch`` files, and then the descriptor that comes with the request is
    the socket for its reports. Kernels with names that match one of ``communication``
    communicate.
    """

    name: str
    file: str
    attribute: str
    root: str
    python_path: list[str]
    device: str
    seed: int
    threads: int
    layout_seed: int | None = None
    watch: Watched | None = None
    communication: list[str] = []


class Loaded(Reply, frozen=True):
    """The workload stands ready.

    ``capabilities`` are the device's, as its backend names them.
    """

    batch: int
    shapes: list[str]
    sla_p99: float | None
    seconds: float
    capabilities: list[str] = []
    sla_rate: float | None = None


class TestbedRequest(WorkerRequest, frozen=True):
    """Ask for the testbed as the worker sees it; no workload needs to be loaded."""

    device: str
    threads: int


class TestbedReply(Reply, frozen=True):
    """The testbed."""

    testbed: Testbed


# A trial that has made this many calls has seen what a workload does now and then.
MANY_CALLS = 1000
# A report of an executed line: the number of the file among those watched, and the
# line.
EXECUTED_LINE = struct.Struct("=II")
# In place of a line: an import opened the file.
LOADED = 0


class TryRequest(WorkerRequest, frozen=True):
    """Make a call of every shape with a workload that has just been loaded, and have
    its output checked.

    If files are watched, many more calls are made, for ``seconds`` at most. With
    ``packages`` the reply names those that are loaded by then.
    """

    seconds: float = 0.0
    packages: bool = False


class Watching(msgspec.Struct, frozen=True):
    """What a trial observed besides the executed lines.

    ``doubts`` are reasons why lines may run unseen, and ``began_processes`` whether
    other processes ran. ``read_files`` are the watched files that were read other than
    by an import, and ``read_code`` the file, first and last line of functions whose
    code was read. ``names`` are those that the executed functions of the project use,
    and ``entered`` these functions, as ``file:line`` below a root. ``sources`` are the
    loaded Python files, except Python's, torch's and perfgate's. ``calls`` were made of
    the workload, and ``has_all_sizes`` is whether each of its batch sizes was tried.
    """

    doubts: list[str]
    began_processes: bool
    read_files: list[int]
    read_code: list[tuple[int, int, int]]
    names: list[str]
    entered: list[str]
    sources: list[str]
    calls: int
    has_all_sizes: bool


class Tried(Reply, frozen=True):
    """The first part that failed, its shape and error; None without a failure. A
    workload that cannot be loaded has no shape.

    ``seconds`` is the time of the calls of all shapes and their checks, an upper bound
    for a call, and ``load_seconds`` that of loading. ``packages`` are the distributions
    with a loaded file; None unless requested. ``watching`` is set if files were
    watched. ``signature`` describes the model, and ``copies_fit`` is how many such
    processes the device holds. If it is one, ``can_park`` is whether its weights can be
    moved off the device and back.
    """

    failed: Literal["load", "call", "check"] | None = None
    shape: str = ""
    error: ErrorDetail | None = None
    seconds: float | None = None
    load_seconds: float = 0.0
    watching: Watching | None = None
    packages: list[str] | None = None
    signature: Signature | None = None
    copies_fit: int | None = None
    can_park: bool = True


class SignatureRequest(WorkerRequest, frozen=True):
    """Describe the model and one call of every shape."""


class Signature(Reply, frozen=True):
    """What a model is and does.

    ``model`` is its type, ``tensors`` has layout and a digest of each parameter and
    buffer, and ``operators`` how often a call of each shape runs an operator.
    """

    model: str
    tensors: dict[str, str]
    operators: dict[str, dict[str, int]]


class TimeCallRequest(WorkerRequest, frozen=True):
    """Time a call of every shape of a workload that has just been loaded, after a first
    one.
    """


class CallTimed(Reply, frozen=True):
    """Seconds of a call of every shape, one after the other."""

    seconds: float


class CheckRequest(WorkerRequest, frozen=True):
    """Run the workload's correctness check on every shape."""


class CheckReply(Reply, frozen=True):
    """Its results."""

    results: list[CorrectnessResult]


# Counts other than operators: memory with the savings of a repeated call, Python's
# work, and bytes left behind.
CountedPart = Literal["memory", "python", "kept"]
COUNTED_PARTS: tuple[CountedPart, ...] = ("memory", "python", "kept")


class RecountRequest(WorkerRequest, frozen=True):
    """Count the operators of single calls of every shape, in a process that has made
    none, and these parts.
    """

    parts: tuple[CountedPart, ...] = COUNTED_PARTS


class Recounted(Reply, frozen=True):
    """Their counters by shape, without what takes a compilation."""

    counters: list[CounterSet]


class StepExtent(msgspec.Struct, frozen=True):
    """How much of a step to measure."""

    quick: bool = True
    # A further turn, which takes less time: parts that turns do not compare may be left
    # out.
    brief: bool = False
    # In a further turn, only exact numbers are wanted.
    exact_only: bool = False
    # The requested seconds in steady state per shape, 0 for the default.
    steady: float = 0.0
    # The number of new processes whose calls are compared, on an accelerator.
    starts: int = 0


class StepSettings(msgspec.Struct, frozen=True):
    """The project's settings that steps obey."""

    threads: int = 1
    # Glob patterns of kernels or operators that a call must run.
    expected_kernels: list[str] = []
    # Parts of the names of the compiler's entry and of running a graph; empty for the
    # device's usual names.
    graph_spans: list[str] = []
    # The bounds of the gate: a step measures enough to judge them.
    budgets: list[Budget] = []
    # The requested numbers of concurrent copies, rising from 1.
    copies: list[int] = []
    # Whether to time new processes that load the workload.
    cold_start: bool = False
    # Whether to try unconfigured shapes.
    shape_space: bool = False


class StepRequest(WorkerRequest, frozen=True):
    """Run one step of the checklist.

    ``no_experiments`` is the reason if the step may make only the workload's own calls.
    With ``leave_out_waits`` it times calls without the waits of the process for a CPU.
    """

    number: int
    limits: dict[str, float]
    seed: int
    artifacts: str
    extent: StepExtent
    settings: StepSettings
    leave_out_waits: bool = False
    no_experiments: Message | None = None


class StepReply(Reply, frozen=True):
    """The result of the step, its further findings, and the files it made or used.

    ``spoiled`` is whether an error of the device may have spoiled the process for what
    follows.
    """

    result: StepResult
    operators: list[OperatorRow] = []
    accounts: list[CallAccount] = []
    counters: list[CounterSet] = []
    artifacts: list[Artifact] = []
    spoiled: bool = False


# A call that takes this long is located by one block as well as by several: its blocks
# have one, and its pairs one quad.
SLOW_CALL_SECONDS = 0.25
# Calls of a block of any other.
FEWEST_CALLS = 3


class WarmUpRequest(WorkerRequest, frozen=True):
    """Warm up every shape and return the number of calls in a block of about
    ``block_seconds``.

    All shapes together are called for at least ``least_seconds``: a card that idled has
    another temperature and clock.
    """

    block_seconds: float
    cap_seconds: float
    least_seconds: float = 0.0


class WarmedUp(Reply, frozen=True):
    """The worker is warm.

    ``block_calls`` maps a shape to the calls of one of its blocks.

    ``call_seconds`` is the time of one call of every shape. ``preprocess_calls`` does
    so for blocks of the preprocessing; it is empty for a workload without any.
    ``forkable`` is whether other workers can be forked from this one. ``parts`` are the
    modules that it imported of packages known to the fork server, in order; none if
    user code changed the environment, which modules may read.
    """

    calls: int
    steady: bool
    call_seconds: float
    block_calls: dict[str, int]
    preprocess_calls: dict[str, int] = {}
    forkable: bool = False
    parts: list[str] = []


class SpawnRequest(WorkerRequest, frozen=True):
    """Fork: one of the two processes answers at the socket that comes as a file
    descriptor, the other stays warm at this.
    """

    layout_seed: int
    stack_path: str


class Spawned(Reply, frozen=True):
    """The new process, which stays warm; the process that answers becomes the other
    worker.
    """

    pid: int


class ParkRequest(WorkerRequest, frozen=True):
    """Move the model's weights into the host's memory, ``away`` from the device, or
    back.
    """

    away: bool


class Parked(Reply, frozen=True):
    """The weights are there."""


class MoveRequest(WorkerRequest, frozen=True):
    """Move weights, inputs and the heap to places chosen by this seed, and make the
    first calls there.
    """

    seed: int


class LayoutMoved(Reply, frozen=True):
    """Everything has moved; only pads and pools if the workload's tensors are not
    ``movable``.
    """

    movable: bool


class BlockRequest(WorkerRequest, frozen=True):
    """Run one timed block of a lane; the worker keeps the samples until it is asked for
    them.

    Calls of a block ``as_served`` collect their garbage, and are timed without waits
    for a CPU.
    """

    shape: str
    calls: int
    quad: int
    sequence: int
    lane: Lane = "call"
    as_served: bool = False


class BlockDone(Reply, frozen=True):
    """The block ran."""


class WakeRequest(WorkerRequest, frozen=True):
    """Call a shape for ``seconds``, unrecorded: a device that idled has another
    temperature and clock.
    """

    shape: str
    seconds: float


class Woken(Reply, frozen=True):
    """The device has worked."""


class KernelsRequest(WorkerRequest, frozen=True):
    """Profile the kernels of a few calls of a shape; the worker keeps them until it is
    asked for its blocks.
    """

    shape: str
    calls: int
    quad: int


class KernelsDone(Reply, frozen=True):
    """The calls were profiled."""


class LocateStallsRequest(WorkerRequest, frozen=True):
    """Sample the lines of calls that take ``longer_than`` this many seconds; of
    ``calls`` at most, within about ``seconds``.
    """

    shape: str
    longer_than: float
    calls: int
    seconds: float


class StallsLocated(Reply, frozen=True):
    """The samples of each line of the project, ``file:line``, in slow calls."""

    samples: dict[str, int]


class CollectRequest(WorkerRequest, frozen=True):
    """Ask for the samples of all blocks."""


class Collected(Reply, frozen=True):
    """The blocks of every shape, and the settings of libraries that user code can
    change, as they stand after them.

    ``kernels`` are the profiled blocks of a device. ``uncounted`` has the hardware
    counters missing from the blocks, and the reason.
    """

    shapes: dict[str, BlockColumns]
    preprocess: dict[str, BlockColumns] = {}
    kernels: dict[str, KernelBlocks] = {}
    settings: dict[str, str] = {}
    uncounted: str | None = None


class TrySizesRequest(WorkerRequest, frozen=True):
    """Try the batch sizes of the first shape, a call each.

    ``limits`` are the checklist's.
    """

    limits: dict[str, float]
    seed: int


class SizesTried(Reply, frozen=True):
    """The sizes that work with the seconds of a call, the refused sizes, and the first
    that exhausts memory or takes long.
    """

    sweep: Sweep


class SizeBlockRequest(WorkerRequest, frozen=True):
    """Run a block of calls of the first shape with one batch size for about
    ``seconds``, after one unrecorded call.
    """

    size: int
    seconds: float


class SizeBlockDone(Reply, frozen=True):
    """The items per second of the block, and the seconds of single calls if the
    workload promises a P99.

    No rate if the size did not work: ``refused`` is why, unless the memory was
    exhausted.
    """

    rate: float | None = None
    latencies: list[float] = []
    refused: Message | None = None


class CompileRequest(WorkerRequest, frozen=True):
    """Compile the call of the first shape and keep it; caches go into ``folder``.

    ``limits`` are the checklist's.
    """

    folder: str
    limits: dict[str, float]
    seed: int


class CompiledCall(Reply, frozen=True):
    """The call is compiled: the seconds of its first call, and why its output does not
    agree with the plain call's.

    ``failed`` is why there is none.
    """

    cold_seconds: float = 0.0
    disagreement: Message | None = None
    failed: Message | None = None


class TimeCompiledRequest(WorkerRequest, frozen=True):
    """Time the plain and the compiled call in turns for about ``seconds``."""

    seconds: float
    seed: int


class CompiledTimed(Reply, frozen=True):
    """The seconds of a plain and of a compiled call."""

    plain: float
    compiled: float


class ProfileRequest(WorkerRequest, frozen=True):
    """Profile the operators of a few calls of a shape; the worker keeps the times until
    it is asked for them.
    """

    shape: str
    calls: int


class ProfileSubroutinesRequest(WorkerRequest, frozen=True):
    """The same for modules and functions."""

    shape: str
    calls: int


class Profiled(Reply, frozen=True):
    """The calls were profiled."""


class ProfileTimesRequest(WorkerRequest, frozen=True):
    """Ask for the times of all profiled calls."""


class ProfileTimes(Reply, frozen=True):
    """Per shape, each operator's typical self time in one call, and each subroutine's
    with all that it calls, in seconds.
    """

    operators: dict[str, dict[str, float]]
    subroutines: dict[str, dict[str, float]]


class RecordRequest(WorkerRequest, frozen=True):
    """Record the operators of a few calls of a shape into ``folder``, on a device with
    deferred trace analysis.
    """

    shape: str
    calls: int
    folder: str


class TraceRequest(WorkerRequest, frozen=True):
    """Record a few calls of a shape, with stacks, into a file ``name`` in ``folder``."""

    shape: str
    calls: int
    folder: str
    name: str


class CallsRecorded(Reply, frozen=True):
    """The calls were recorded; ``recording`` is the file."""

    recording: str


class AnalyseRequest(WorkerRequest, frozen=True):
    """Analyse recordings that workers left in ``folder``; no workload needs to be
    loaded.

    ``traces`` maps recordings to the path, without its suffix, of the file as which
    they stay.
    """

    device: str
    folder: str
    recordings: list[str]
    traces: dict[str, str] = {}


class Analysis(Reply, frozen=True):
    """Per recording that could be analysed, each operator's typical time in one call,
    in seconds, and its kernels.

    ``traces`` maps recordings to the files as which they stay.
    """

    operators: dict[str, dict[str, float]]
    kernels: dict[str, KernelBlocks] = {}
    traces: dict[str, str] = {}


class WatchLoadRequest(WorkerRequest, frozen=True):
    """Load the device for ``seconds`` and judge the clock it keeps; no workload needs
    to be loaded.
    """

    device: str
    seconds: float


class LoadWatched(Reply, frozen=True):
    """The behaviour of the device's clock under load."""

    checks: list[FitnessCheck]


class ProgressReply(Reply, frozen=True):
    """A worker's current activity, a sentence with ``{places}`` for its values."""

    text: str
    values: dict[str, str | int | float] = {}


class Experimenting(Reply, frozen=True):
    """A worker begins an experiment of a step: if it fails or dies from here on, that
    need not be the workload's fault.
    """


class Failed(Reply, frozen=True):
    """A worker's request ended in an exception; the worker is still there."""

    error: ErrorDetail


def _decoder_of(base: type[msgspec.Struct]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(reduce(or_, base.__subclasses__()))


def _as_text(value: object) -> str:
    """A subclass of str as the text that it holds: torch's version is one, and so may
    be what an exception prints.
    """
    if isinstance(value, str):
        return str.__str__(value)
    raise NotImplementedError(f"objects of type {type(value).__name__}")


_encoder = msgspec.json.Encoder(enc_hook=_as_text)
request_decoder = _decoder_of(WorkerRequest)
reply_decoder = _decoder_of(Reply)
server_decoder = _decoder_of(ServerMessage)
fork_decoder = msgspec.json.Decoder(ForkRequest | AdoptRequest)


class ConnectionClosed(Exception):  # noqa: N818 - an end, not an error: it is how a worker leaves
    """The other side is gone."""


class ProtocolError(Exception):
    """The data on the socket is not a message of ours."""


def send(
    connection: socket.socket, message: msgspec.Struct, descriptor: int | None = None
) -> None:
    """Send one message, and a file descriptor that goes with it.

    Raises ConnectionClosed when the other side is gone, or our side of the socket is.
    """
    payload = _encode(message)
    header = _HEADER.pack(len(payload))
    try:
        if descriptor is None:
            connection.sendall(header + payload)
        else:
            socket.send_fds(connection, [header], [descriptor])
            connection.sendall(payload)
    except OSError as error:
        raise ConnectionClosed from error


def receive(connection: socket.socket) -> bytes:
    """Wait for the next message and return its bytes; for a reader that trusts its
    sender.

    Raises ConnectionClosed when the other side is gone.
    """
    (size,) = _HEADER.unpack(_read_exactly(connection, _HEADER.size))
    return _read_exactly(connection, size)


def receive_with_descriptor(connection: socket.socket) -> tuple[bytes, int | None]:
    """The next message and the descriptor that came with it, if any.

    Raises ConnectionClosed.
    """
    try:
        header, descriptors, _, _ = socket.recv_fds(connection, _HEADER.size, 1)
    except OSError as error:
        raise ConnectionClosed from error
    if not header:
        raise ConnectionClosed
    (size,) = _HEADER.unpack(
        header + _read_exactly(connection, _HEADER.size - len(header))
    )
    return _read_exactly(connection, size), descriptors[0] if descriptors else None


class Inbox:
    """The reading end for an untrusted sender: it never waits longer than the given
    seconds.

    User code lives in the same process as the sender, and can write anything into its
    socket, half a message too.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = bytearray()

    def poll(self, seconds: float) -> bytes | None:
        """The next message, None when it is not complete after ``seconds``.

        Raises ConnectionClosed when the other side is gone and ProtocolError when it
        announces more than MAX_MESSAGE_BYTES.
        """
        message = self._take()
        if message is None and select.select([self._connection], [], [], seconds)[0]:
            self._buffer += self._read_some()
            message = self._take()
        return message

    def _take(self) -> bytes | None:
        if len(self._buffer) < _HEADER.size:
            return None
        (size,) = _HEADER.unpack_from(self._buffer)
        if size > MAX_MESSAGE_BYTES:
            raise ProtocolError(
                f"it announces {size} bytes, where at most {MAX_MESSAGE_BYTES} are taken"
            )
        end = _HEADER.size + size
        if len(self._buffer) < end:
            return None
        message = bytes(self._buffer[_HEADER.size : end])
        del self._buffer[:end]
        return message

    def _read_some(self) -> bytes:
        try:
            chunk = self._connection.recv(_CHUNK)
        except OSError as error:
            raise ConnectionClosed from error
        if not chunk:
            raise ConnectionClosed
        return chunk


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    chunks: list[bytes] = []
    while size:
        try:
            chunk = connection.recv(min(size, _CHUNK))
        except OSError as error:
            raise ConnectionClosed from error
        if not chunk:
            raise ConnectionClosed
        chunks.append(chunk)
        size -= len(chunk)
    return b"".join(chunks)


def _encode(message: msgspec.Struct) -> bytes:
    try:
        return _encoder.encode(message)
    except UnicodeEncodeError:
        # A lone surrogate, e.g. from a file name that is not UTF-8, must not cost us
        # the message it stands in.
        return _encoder.encode(_printable(msgspec.to_builtins(message)))


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_printable(key): _printable(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_printable(member) for member in value]
    return value
