"""A remote branch without a clone: its newest commit in a bare scratch repository, and
commits pushed on top of it.

No checkout, no index: the project's own clone, its branches, configuration and hooks
are never touched. If the server supports partial clones (git-fetch, --filter), only
requested content is fetched.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from perfgate.errors import RepositoryError, StoreError, StoreRefusedError
from perfgate.git.commands import GitResult, contents_of, run_git
from perfgate.judging.store.remote import REMOTE, RemoteBranch
from perfgate.locale import Activity
from perfgate.system.interrupts import held_back

# GIT_CONFIG_COUNT came with git 2.31 (its release notes).
OLDEST_GIT = (2, 31)
NETWORK_SECONDS = 120.0
LOCAL_SECONDS = 120.0
MAX_FILES = 400_000
MAX_FILE_BYTES = 64 * 1024 * 1024
MAX_READ_BYTES = 512 * 1024 * 1024

_TIP = "refs/perfgate/tip"
_NEW = "refs/perfgate/new"
_COUNT = re.compile(rb"^Perfgate-Commits: ([0-9]{1,9})$", re.MULTILINE)
_AUTHOR = "perfgate <perfgate@noreply.invalid>"


@dataclass(frozen=True)
class Tip:
    """The newest commit of the branch: the object id of each file by path, and the
    length of its history.

    ``commit`` is None if the branch does not exist yet.
    """

    commit: str | None = None
    commits: int = 0
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class StoreChange:
    """The change of a commit: files to write and to remove, and its message; ``alone``
    drops the earlier history.
    """

    message: str
    write: Mapping[str, bytes] = field(default_factory=dict)
    remove: frozenset[str] = frozenset()
    alone: bool = False


class Scratch:
    """A bare repository in a scratch folder, tied to one branch of a remote repository."""

    def __init__(self, folder: Path, link: RemoteBranch) -> None:
        self._folder = folder
        self._link = link
        self._environment = link.environment(folder)
        self._has_tip = False

    def start(self) -> None:
        """Create the repository."""
        self._must("init", "--quiet", "--bare", "--template=", ".")

    def fetch(self) -> Tip:
        """Fetch the current tip of the branch.

        Raises StoreError if the server does not provide it.
        """
        result = self._git(
            "fetch",
            "--quiet",
            "--depth=1",
            "--filter=blob:none",
            "--no-tags",
            "--no-write-fetch-head",
            REMOTE,
            f"+{self._link.ref}:{_TIP}",
            seconds=NETWORK_SECONDS,
        )
        if result.code and "couldn't find remote ref" in result.errors.lower():
            return Tip()
        if result.code:
            raise self._refusal(Activity("cannot be read"), result)
        self._has_tip = True
        ((commit, text),) = contents_of(
            self._must("cat-file", "--batch", feed=f"{_TIP}\n".encode())
        )
        counted = _COUNT.search(text)
        return Tip(commit, int(counted[1]) if counted else 1, self._list(commit))

    def read(
        self, names: Sequence[str], *, most: int = MAX_FILE_BYTES
    ) -> dict[str, bytes]:
        """Contents by object id, fetched in one request; the ids may come from another
        scratch repository.

        Raises StoreError for a content larger than ``most``.
        """
        if not names:
            return {}
        self._fetch_missing(names)
        request = ("\n".join(names) + "\n").encode()
        sizes: list[int] = []
        for line in self._must("cat-file", "--batch-check", feed=request).splitlines():
            fields = line.split()
            if len(fields) != 3 or fields[1] != b"blob":
                raise StoreError(
                    "{name} lacks a file that it lists; {try_again}",
                    name=self._link.name,
                    try_again=_TRY_AGAIN,
                )
            sizes.append(int(fields[2]))
        total = sum(sizes)
        if total > MAX_READ_BYTES or max(sizes) > most:
            raise StoreError(
                "{name} holds more than perfgate ever writes there ({total} bytes); {prune}",
                name=self._link.name,
                total=total,
                prune=_PRUNE,
            )
        return dict(contents_of(self._must("cat-file", "--batch", feed=request)))

    def push(self, tip: Tip, change: StoreChange, *, seconds_since_1970: int) -> bool:
        """Push a commit unless the branch has moved since; return whether the branch is
        at it now.

        Raises StoreError if the server refuses it for another reason.
        """
        commit = self._commit(tip, change, seconds_since_1970)
        expected = f"--force-with-lease={self._link.ref}:{tip.commit or ''}"
        result = self._git(
            "push",
            "--porcelain",
            "--no-verify",
            expected,
            REMOTE,
            f"{commit}:{self._link.ref}",
            seconds=NETWORK_SECONDS,
        )
        if result.code == 0:
            return True
        now = self.fetch().commit
        if now == commit:
            return True  # the push arrived, but its answer was lost
        if now != tip.commit:
            return False
        raise self._refusal(Activity("cannot be written"), result)

    def _commit(self, tip: Tip, change: StoreChange, seconds_since_1970: int) -> str:
        """Create the commit in one process (git-fast-import)."""
        commits, parent = 1, b""
        if tip.commit is not None and change.alone:
            tree = self._must("rev-parse", "--verify", f"{tip.commit}^{{tree}}").strip()
            parent = b'M 040000 %b ""\n' % tree
        elif tip.commit is not None:
            commits, parent = tip.commits + 1, b"from %b\n" % tip.commit.encode()
        message = (
            f"{change.message} [skip ci]\n\nPerfgate-Commits: {commits}\n".encode()
        )
        stream = bytearray(
            f"commit {_NEW}\nmark :1\ncommitter {_AUTHOR} {seconds_since_1970} +0000\n".encode()
        )
        stream += b"data %d\n%b\n%b" % (len(message), message, parent)
        for path in sorted(change.remove):
            stream += f"D {path}\n".encode()
        for path, data in sorted(change.write.items()):
            stream += b"M 100644 inline %b\ndata %d\n%b\n" % (
                path.encode(),
                len(data),
                data,
            )
        stream += b"get-mark :1\ndone\n"
        result = self._must(
            "fast-import",
            "--quiet",
            "--force",
            "--done",
            "--date-format=raw",
            feed=bytes(stream),
        )
        return result.decode().strip()

    def _list(self, commit: str) -> dict[str, str]:
        files = {}
        for entry in self._must("ls-tree", "-r", "-z", "--full-tree", commit).split(
            b"\0"
        )[:-1]:
            about, _, path = entry.partition(b"\t")
            _mode, kind, name = about.split(b" ")
            if kind == b"blob":
                files[path.decode(errors="replace")] = name.decode()
        if len(files) > MAX_FILES:
            raise StoreError(
                "{name} holds {count} files, at most {most} are read; {prune}",
                name=self._link.name,
                count=len(files),
                most=MAX_FILES,
                prune=_PRUNE,
            )
        return files

    def _fetch_missing(self, names: Iterable[str]) -> None:
        """Fetch the filtered-out objects in one request; git itself would fetch one
        after the other.
        """
        missing = set(names)
        if self._has_tip:
            listed = self._must(
                "rev-list", "--objects", "--missing=print", "--no-object-names", _TIP
            ).decode()
            missing &= {
                line[1:] for line in listed.splitlines() if line.startswith("?")
            }
        if not missing:
            return
        result = self._git(
            "-c",
            "fetch.negotiationAlgorithm=noop",
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-write-fetch-head",
            "--filter=blob:none",
            "--stdin",
            REMOTE,
            feed=("\n".join(sorted(missing)) + "\n").encode(),
            seconds=NETWORK_SECONDS,
        )
        if result.code:
            raise self._refusal(Activity("cannot be read"), result)

    def _must(self, *arguments: str, feed: bytes = b"") -> bytes:
        """Run a local git command. Raises StoreError if it fails."""
        result = self._git(*arguments, feed=feed)
        if result.code:
            raise self._refusal(
                Activity("cannot be used: git {command} failed", command=arguments[0]),
                result,
            )
        return result.data

    def _git(
        self, *arguments: str, feed: bytes = b"", seconds: float = LOCAL_SECONDS
    ) -> GitResult:
        try:
            return run_git(
                self._folder,
                arguments,
                self._environment,
                feed=feed,
                limit_seconds=seconds,
            )
        except RepositoryError as error:
            raise StoreRefusedError(
                "{name} cannot be used: {error}; is the server reachable from here?",
                name=self._link.name,
                error=error,
            ) from error

    def _refusal(self, action: str, result: GitResult) -> StoreError:
        self._refuse_old_git()
        output = f"{result.data.decode(errors='replace')} {result.errors}"
        words = self._link.scrub(" ".join(output.split()))
        words = "".join(
            character if character.isprintable() else " " for character in words
        )[:600]
        remedy = _OFFLINE
        for signs, remedy_of_signs in _REMEDIES:
            if re.search(signs, words, re.IGNORECASE):
                remedy = remedy_of_signs
                break
        return StoreRefusedError(
            "{name} {action}: {words}; {remedy}{hint}",
            name=self._link.name,
            action=action,
            words=words or Activity("no reason given"),
            remedy=remedy,
            hint=self._link.hint,
        )

    def _refuse_old_git(self) -> None:
        """Raise StoreError for a git older than OLDEST_GIT; checked only after a
        failure.
        """
        output = self._git("version").data.decode(errors="replace").strip()
        match = re.search(r"(\d+)\.(\d+)", output)
        if match is None or (int(match[1]), int(match[2])) < OLDEST_GIT:
            raise StoreError(
                "a store in a branch needs git {oldest} or newer, found {output!a}; install a newer git",
                oldest=".".join(map(str, OLDEST_GIT)),
                output=output[:80],
            )


@contextmanager
def open_scratch(link: RemoteBranch) -> Iterator[Scratch]:
    """Open a scratch repository for one use, and remove it at the end."""
    with held_back():
        try:
            folder = tempfile.TemporaryDirectory(prefix="perfgate-store-")
        except OSError as error:
            raise StoreRefusedError(
                "no scratch folder can be made ({error}); {space}",
                error=error,
                space=_SPACE,
            ) from error
        with folder:
            scratch = Scratch(Path(folder.name), link)
            scratch.start()
            yield scratch


_TRY_AGAIN = Activity("it is being rewritten, or is damaged: run the command again")
_PRUNE = Activity(
    "remove old runs with `perfgate baseline prune --keep N`, or give the store another branch"
)
_SPACE = Activity(
    "free space in the folder for temporary files, or set TMPDIR to one with space"
)
_OFFLINE = Activity(
    "is the server reachable from here, and the address right? then run the command again"
)
# Messages of git 2.39 and of the forges' hooks; the first match counts.
_REMEDIES = (
    (
        "no space left|disk quota exceeded|unable to write|could not write",
        _SPACE,
    ),
    (
        "protected branch|gh006|gh013|not allowed to push|hook declined|remote rejected|force push",
        Activity(
            "the server protects this branch: let the job's account push to it (docs/store.md says how), or choose another "
            "name in [store] path"
        ),
    ),
    (
        "authentication failed|could not read username|could not read password| 401| 403|permission",
        Activity(
            "the job's token or your key may not do this: reading needs read access to the code, writing needs write access "
            "(GitHub: contents: write; GitLab: a project access token with write_repository)"
        ),
    ),
    (
        "redirect|unable to update url base|returned error: 30",
        Activity(
            "the repository has moved, and a redirect is not followed: set the remote to its new address"
        ),
    ),
    (
        "not found|does not appear to be a git repository|does not exist",
        Activity(
            "there is no such repository, or this account may not see it: check the remote and the token"
        ),
    ),
    (
        "certificate|ssl",
        Activity(
            "the server's certificate is not known here: install its authority's certificate, or name the file in "
            "GIT_SSL_CAINFO"
        ),
    ),
)
