"""Traps beside the rooms of the sides: what the machine shares with both, and documents that nothing opens."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from pathlib import Path

from perfgate.conductor.code.reads import watch_reads
from perfgate.config import PathSettings
from perfgate.flows.shared.reads import not_known_as_unread
from perfgate.judging.gate.paths import skipped_because
from perfgate.system.walls import Room
from tests.traps.catalogue import not_caught
from tests.traps.naming import names
from tests.traps.test_checkouts import documents, sealed_base
from tests.traps.virtual import judged


def in_room(room: Room, code: str, *arguments: str) -> str:
    """Run Python within the walls of a room, and return what it prints."""
    walls = [sys.executable, "-m", "perfgate.system.walls", json.dumps(room)]
    command = [*walls, sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def rooms(root: Path) -> tuple[Room, Room]:
    """Return the rooms of base and head."""
    made = [Room(str(root), str(root / side)) for side in ("base", "head")]
    for room in made:
        Path(room.folder).mkdir(parents=True)
    return made[0], made[1]


def serve(listener: socket.socket) -> None:
    """Keep the last word that a client sent, and give it to those that send none."""
    kept = b""
    while True:
        try:
            client = listener.accept()[0]
        except OSError:
            return
        with client:
            word = client.recv(64)
            kept = word if word != b"?" else kept
            client.sendall(kept)


@not_caught(
    "a head that leaves data for base in a service of the machine",
    fools="a database, a cache server or a port on this machine or in its network keeps what the head wrote, and the base, "
    "which asks there too, gets slower",
    because="workloads may need the network: servers under load, ranks and downloads do. perfgate closes the files and "
    "processes of one side to the other, but not the network. Run code of strangers in a container or network namespace from "
    "which no service that keeps data can be reached; where a workload needs one, let it start its own. A port that one side "
    "keeps from the other ends as an error, never as a verdict",
)
def test_data_left_in_a_service(tmp_path: Path) -> set[str]:
    talk = (
        "import socket, sys\n"
        "with socket.create_connection(('127.0.0.1', int(sys.argv[1]))) as service:\n"
        "    service.sendall(sys.argv[2].encode()); print(service.recv(64).decode())"
    )
    (tmp_path / "checkout").mkdir()
    seals = sealed_base(tmp_path / "checkout")
    base, head = rooms(tmp_path / "rooms")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=[listener], daemon=True).start()
        port = str(listener.getsockname()[1])
        seals.begin("head")
        in_room(head, talk, port, "be slow")
        assert in_room(base, talk, port, "?") == "be slow"
        listener.shutdown(socket.SHUT_RDWR)
    return names(judged(*documents(seals)))


@not_caught(
    "a head that takes away the permissions of what base cached",
    fools="the head sets the mode of a file in base's home to 0, or its time to another day: the base cannot read what it "
    "compiled, and compiles it again",
    because="Landlock decides who opens, makes, moves and removes files, not who sets modes, owners and times "
    "(Documentation/userspace-api/landlock.rst), and both sides are one user. What the base compiles again is in its start and "
    "warm-up, by which no verdict goes by itself; a base that cannot go on is an error, never a verdict. Checkouts, "
    "packages and linked files are not concerned: a new mode or time there is a change that is reported. As root, for whom "
    "modes mean nothing, only times are left",
)
def test_modes_of_the_others_files(tmp_path: Path) -> set[str]:
    (tmp_path / "checkout").mkdir()
    seals = sealed_base(tmp_path / "checkout")
    base, head = rooms(tmp_path / "rooms")
    kernel = Path(base.folder) / "kernel.so"
    kernel.write_text("compiled")
    kernel.chmod(0o600)
    seals.begin("head")
    in_room(head, "import os, sys; os.chmod(sys.argv[1], 0); os.utime(sys.argv[1], (1, 1))", str(kernel))
    assert kernel.stat().st_mode & 0o777 == 0
    assert kernel.stat().st_mtime == 1
    return names(judged(*documents(seals)))


@not_caught(
    "a document whose existence alone is asked for",
    fools="a change adds `docs/slow.md`; code that puts its path together only looks whether it is there, or how large it is, "
    "and then works longer",
    because="a document counts as read once something opens it, which its access time shows; a look at its name or size leaves "
    "no trace in the kernel, and a record of all looks would slow what is measured. A path that stands in the code, or a "
    "listed folder, is found. Take such files in under `[paths] ignore` (`!docs/slow.md`), or keep them in a format of data: a "
    "change of one is always measured",
)
def test_document_that_is_never_opened(tmp_path: Path) -> set[str]:
    (tmp_path / "docs").mkdir()
    for name in ("slow.md", "read.md"):
        (tmp_path / "docs" / name).write_text("words")
    list_reads = watch_reads(tmp_path, ["docs/slow.md", "docs/read.md"])
    assert list_reads is not None
    looks = "import os, sys; print(os.path.getsize(os.path.join('docs', 'slow' + '.md')))"
    subprocess.run([sys.executable, "-c", looks], cwd=tmp_path, check=True, capture_output=True)
    read = frozenset(list_reads())
    because = skipped_because(
        ["docs/slow.md"],
        PathSettings(),
        always=set(),
        read=lambda files: not_known_as_unread(files, read),
    )
    return {"verdict SKIPPED"} if because else {"verdict INCONCLUSIVE"}
