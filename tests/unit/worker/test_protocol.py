from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from perfgate.document.message import Message, as_message, english
from perfgate.document.run import ErrorDetail
from perfgate.protocol import (
    MAX_MESSAGE_BYTES,
    BlockDone,
    ConnectionClosed,
    Failed,
    ForkRequest,
    Inbox,
    ProgressReply,
    ProtocolError,
    fork_decoder,
    receive,
    receive_with_descriptor,
    reply_decoder,
    send,
)
from perfgate.system.walls import Room


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


Ends = tuple[socket.socket, socket.socket]


def test_send__message__framed_by_its_length_little_endian(ends: Ends) -> None:
    send(ends[0], BlockDone())
    assert ends[1].recv(100) == b"\x14\x00\x00\x00" + b'{"type":"BlockDone"}'


class Version(str):
    """As torch.__version__ is."""

    __slots__ = ()


def test_send__text_of_a_subclass_of_str__arrives_as_text(ends: Ends) -> None:
    error = ErrorDetail(kind="exception", message=Message("device.no-cuda-build", {"version": Version("2.13.0+cpu")}))
    send(ends[0], Failed(error=error))
    received = reply_decoder.decode(receive(ends[1]))
    assert isinstance(received, Failed)
    assert "this torch 2.13.0+cpu has no CUDA" in english(as_message(received.error.message))


def test_receive__message_in_single_bytes__whole(ends: Ends) -> None:
    def drip() -> None:
        for byte in b"\x14\x00\x00\x00" + b'{"type":"BlockDone"}':
            ends[0].send(bytes([byte]))

    writer = threading.Thread(target=drip)
    writer.start()
    assert reply_decoder.decode(receive(ends[1])) == BlockDone()
    writer.join()


@pytest.mark.parametrize("sent", [b"", b"\x14\x00", b"\x14\x00\x00\x00", b'\x14\x00\x00\x00{"type":'])
def test_receive__sender_goes_away__connection_closed(ends: Ends, sent: bytes) -> None:
    ends[0].sendall(sent)
    ends[0].close()
    with pytest.raises(ConnectionClosed):
        receive(ends[1])


def test_inbox__half_a_message__none_in_time_and_whole_later(ends: Ends) -> None:
    inbox = Inbox(ends[1])
    ends[0].sendall(b'\x14\x00\x00\x00{"type":')
    assert inbox.poll(0.05) is None  # returns, although the rest does not come
    assert inbox.poll(0.05) is None
    ends[0].sendall(b'"BlockDone"}')
    assert inbox.poll(0.05) == b'{"type":"BlockDone"}'


def test_inbox__two_messages_at_once__one_after_the_other(ends: Ends) -> None:
    send(ends[0], ProgressReply(text="one"))
    send(ends[0], ProgressReply(text="two"))
    inbox = Inbox(ends[1])
    assert [reply_decoder.decode(inbox.poll(1) or b"") for _ in range(2)] == [
        ProgressReply("one"),
        ProgressReply("two"),
    ]
    assert inbox.poll(0) is None


def test_inbox__closed_in_the_middle__connection_closed(ends: Ends) -> None:
    ends[0].sendall(b"\x14\x00\x00\x00{")
    ends[0].close()
    inbox = Inbox(ends[1])
    assert inbox.poll(1) is None
    with pytest.raises(ConnectionClosed):
        inbox.poll(1)


def test_inbox__too_much_announced__protocol_error_and_nothing_is_read_for_it(ends: Ends) -> None:
    ends[0].sendall((MAX_MESSAGE_BYTES + 1).to_bytes(4, "little"))
    with pytest.raises(ProtocolError, match="announces 536870913 bytes"):
        Inbox(ends[1]).poll(1)


def test_inbox__message_larger_than_the_socket_buffer__whole(ends: Ends) -> None:
    text = "x" * 3_000_000
    writer = threading.Thread(target=send, args=(ends[0], ProgressReply(text=text)))
    writer.start()
    inbox, message = Inbox(ends[1]), None
    while message is None:
        message = inbox.poll(1)
    writer.join()
    assert reply_decoder.decode(message) == ProgressReply(text=text)


def test_send__reader_gone__connection_closed(ends: Ends) -> None:
    ends[1].close()
    with pytest.raises(ConnectionClosed):
        send(ends[0], ProgressReply(text="x" * 1_000_000))


def test_send__our_own_socket_was_closed_under_us__connection_closed() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        os.close(ours.detach())
        with pytest.raises(ConnectionClosed):
            send(ours, BlockDone())


def test_send__lone_surrogate_in_a_text__arrives_with_a_question_mark(ends: Ends) -> None:
    send(ends[0], Failed(error=ErrorDetail(kind="exception", message="caf\udce9.bin")))
    found = reply_decoder.decode(receive(ends[1]))
    assert found == Failed(error=ErrorDetail(kind="exception", message="caf?.bin"))


def test_send__descriptor_of_a_pipe__the_other_side_can_write_into_it(ends: Ends) -> None:
    read_end, write_end = os.pipe()
    request = ForkRequest(
        worker_id=7,
        layout_seed=1,
        cpus=[0],
        log_path="log",
        stack_path="stack",
        home="/",
        room=Room("/tmp", "/tmp/room"),
    )
    send(ends[0], request, write_end)
    os.close(write_end)
    payload, received = receive_with_descriptor(ends[1])
    assert received is not None
    os.write(received, b"hello")
    os.close(received)
    assert fork_decoder.decode(payload) == request
    assert os.read(read_end, 10) == b"hello"
    os.close(read_end)


def test_receive_with_descriptor__message_without_one__none(ends: Ends) -> None:
    send(ends[0], BlockDone())
    payload, received = receive_with_descriptor(ends[1])
    assert (reply_decoder.decode(payload), received) == (BlockDone(), None)


def test_receive_with_descriptor__sender_goes_away__connection_closed(ends: Ends) -> None:
    ends[0].close()
    with pytest.raises(ConnectionClosed):
        receive_with_descriptor(ends[1])
