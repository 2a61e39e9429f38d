"""A git clone: which commits to compare, and worktrees to measure them in."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from perfgate.document.message import Message
from perfgate.document.run import Source
from perfgate.errors import HostileRepositoryError, RepositoryError
from perfgate.git.commands import COMMIT_ID, NAMES_OF_CHANGED, entries_of, run_git
from perfgate.git.contents import WITHOUT_LFS, fill_worktree, refuse_changed_submodules
from perfgate.locale import Activity
from perfgate.system.folders import remove_folder
from perfgate.system.interrupts import held_back

WORKTREE_FOLDER = "perfgate-worktrees"
# Names of the main branch if neither a remote nor perfgate.toml has one.
MAIN_NAMES = ("main", "master", "trunk")
# Author and committer of commits outside every branch.
AS_PERFGATE = dict.fromkeys(
    (
        "GIT_AUTHOR_NAME",
        "GIT_AUTHOR_EMAIL",
        "GIT_COMMITTER_NAME",
        "GIT_COMMITTER_EMAIL",
    ),
    "perfgate",
)
# A remote that has not answered by then is taken for one that does not.
ASK_SECONDS = 60.0
FETCH_SECONDS = 600.0


# git may not ask a server for commits that the clone lacks.
_ALL_HERE = {"GIT_NO_LAZY_FETCH": "1"}


@dataclass(frozen=True)
class BaseChoice:
    """The commit to compare with, and why this one."""

    commit: str
    because: Message


_FETCH_MORE = Activity(
    "; this is a shallow clone: fetch more history (`git fetch --unshallow`, in CI `fetch-depth: 0`)"
)


class Repository:
    """A git clone, found from a folder inside it.

    Raises RepositoryError when there is none.
    """

    def __init__(self, start: Path) -> None:
        if not start.is_dir():
            raise RepositoryError("{start} does not exist", start=start)
        self.root = start
        try:
            top = self._run("rev-parse", "--show-toplevel")
        except RepositoryError as error:
            raise _not_a_clone(start.absolute(), str(error)) from error
        if not top:
            raise RepositoryError(
                "{start} lies inside a .git folder; go to the work tree",
                start=start.absolute(),
            )
        self.root = Path(top)

    def head(self) -> str:
        return self.resolve(
            "HEAD",
            Activity("; the repository has no commit yet; commit something first"),
        )

    def resolve(self, revision: str, remedy: str = "") -> str:
        commit = _commit(self.root, revision)
        if commit is not None:
            return commit
        if not remedy:
            remedy = (
                _FETCH_MORE
                if self.is_shallow()
                else Activity("; check `git log --all`")
            )
        raise RepositoryError(
            "git knows no commit {revision!r} in {root}{remedy}",
            revision=revision,
            root=self.root,
            remedy=remedy,
        )

    def main_branch(self, configured: str = "", *, fetch: bool = False) -> str:
        """The branch that changes are compared with.

        A clone of a single branch has no other; with ``fetch`` its remote is asked for
        the main one.
        """
        default = None
        if not configured:
            default = self._default_of("origin")
        # A remote may have the very branch checked out that is worked on.
        if default and (
            default.removeprefix("origin/") in MAIN_NAMES
            or not self.is_current(default)
        ):
            return default
        names = _main_names(configured)
        for place in ("", "origin/"):
            for name in names:
                if self._exists(f"{place}{name}"):
                    return f"{place}{name}"
        main = default
        if main is None and fetch:
            main = self.fetch_main("origin", configured)
        return main or configured or self._ask_for_main()

    def _ask_for_main(self) -> str:
        branches = self._run(
            "for-each-ref", "--format=%(refname:short)", "refs/heads"
        ).split()
        candidates = [
            name for name in branches if name != self._current_branch()
        ] or branches
        there, remedy = "…", ""
        if not self._fetches_all("origin"):
            remedy = "; this clone has a single branch: `git fetch origin MAIN:refs/remotes/origin/MAIN` first"
        elif len(candidates) == 1:
            there = candidates[0]
        raise RepositoryError(
            "{root} has no branch main, master or trunk to compare with; name one with --base, or set "
            'main_branch = "{there}" under [store] in perfgate.toml{remedy}',
            root=self.root,
            there=there,
            remedy=remedy,
        )

    def main_of(self, remote: str, configured: str) -> str | None:
        """The main branch of a remote as it was last seen; None if it never was."""
        if default := self._default_of(remote):
            return default
        for name in _main_names(configured.removeprefix(f"{remote}/")):
            if self._exists(f"refs/remotes/{remote}/{name}"):
                return f"{remote}/{name}"
        return None

    def fetch_main(self, remote: str, configured: str) -> str | None:
        """Fetch the main branch of a remote, with the history that a shallow clone
        lacks; None if that fails.
        """
        own = configured.removeprefix(f"{remote}/")
        with suppress(RepositoryError):
            main = self._ask_remote_for_main(remote, own)
            if main is None:
                return None
            fetch = ["fetch", "--quiet", "--no-tags"]
            if self.is_shallow():
                fetch.append("--unshallow")
            fetch += [remote, f"+refs/heads/{main}:refs/remotes/{remote}/{main}"]
            if run_git(self.root, fetch, limit_seconds=FETCH_SECONDS).code == 0:
                return f"{remote}/{main}"
        return None

    def _ask_remote_for_main(self, remote: str, own: str) -> str | None:
        names = _main_names(own)
        ask = [
            "ls-remote",
            "--symref",
            remote,
            "HEAD",
            *(f"refs/heads/{name}" for name in names),
        ]
        listing = run_git(self.root, ask, limit_seconds=ASK_SECONDS).output
        heads = re.findall(r"\trefs/heads/(.*)$", listing, flags=re.MULTILINE)
        for name in names:
            if name in heads:
                return name
        default = re.search(
            r"^ref: refs/heads/(\S+)\tHEAD$", listing, flags=re.MULTILINE
        )
        if default and not own:
            return default[1]
        return None

    def _default_of(self, remote: str) -> str | None:
        """The branch that a remote calls its default.

        A clone of a single branch has that one as default, so only a usual name is
        believed there.
        """
        with suppress(RepositoryError):
            head = self._run(
                "rev-parse",
                "--abbrev-ref",
                "--verify",
                "--quiet",
                f"refs/remotes/{remote}/HEAD",
            )
            if head.removeprefix(f"{remote}/") in MAIN_NAMES or self._fetches_all(
                remote
            ):
                return head
        return None

    def _fetches_all(self, remote: str) -> bool:
        refspecs = run_git(
            self.root, ["config", "--get-all", f"remote.{remote}.fetch"]
        ).output
        return not refspecs or "*" in refspecs

    def _current_branch(self) -> str:
        return self._run("branch", "--show-current")

    def is_current(self, branch: str) -> bool:
        """Whether the branch that is checked out is this one, here or on origin."""
        return self._current_branch() == branch.removeprefix("origin/")

    def holds(self, revision: str, commit: str) -> bool:
        """Whether a revision has a commit in its history, or is it."""
        return is_behind(self.root, commit, revision)

    def choose_base(self, revision: str, head: str) -> BaseChoice:
        """The merge base of ``revision`` and ``head``: main's later commits are not
        this change's doing.

        If ``head`` is itself an ancestor of ``revision``, the revision is used
        unchanged.
        """
        commit = self.resolve(revision)
        base, because = commit, "gate.base-as-given-same"
        if commit != head:
            base = self._merge_base(commit, head, revision)
            because = "gate.base-merge-base"
            if base == commit:
                because = "gate.base-ancestor"
            elif base == head:
                base, because = commit, "gate.base-as-given-ahead"
        return BaseChoice(base, Message(because, {"revision": revision}))

    def dirty_files(self) -> list[str]:
        status = self._run(
            "status", "--porcelain", "-z", "--untracked-files=no", "--no-renames"
        )
        return [
            entry[3:] for entry in entries_of(status)
        ]  # git status, "Short Format": XY, a blank, the path

    def snapshot(self) -> tuple[str, bool]:
        """A commit that holds the work tree as it is now, and whether it differs from
        HEAD.

        Untracked files are included, ignored files are not. Neither the index, nor a
        branch, nor a file is touched.
        """
        head = self.head()
        refuse_changed_submodules(self.root)
        with tempfile.TemporaryDirectory(prefix="perfgate-index-") as folder:
            copied = Path(folder) / "index"
            index = {"GIT_INDEX_FILE": str(copied)}
            original = Path(
                self._run("rev-parse", "--path-format=absolute", "--git-path", "index")
            )
            if original.exists():
                # A copy, not a new one from HEAD: it records unchanged files, and those
                # that a sparse checkout leaves out. With its time: git compares the
                # content only of files that may have changed since then (git,
                # racy-git.txt).
                shutil.copy2(original, copied)
            else:
                self._run("read-tree", head, env=index)
            self._run("add", "--all", env=index)
            tree = self._run("write-tree", env=index)
        if tree == self._run("rev-parse", f"{head}^{{tree}}"):
            return head, False
        message = "work tree with uncommitted changes"
        return self._run(
            "commit-tree", tree, "-p", head, "-m", message, env=AS_PERFGATE
        ), True

    def source(
        self, commit: str, *, dirty: bool = False, branch: str | None = None
    ) -> Source:
        if branch is None:
            branch = self._current_branch() or None
        shown = self._run("show", "--no-patch", "--format=%cI%n%an%n%s", commit)
        committed_at, _, named = shown.partition("\n")
        author, _, subject = named.partition("\n")
        return Source(
            commit=commit,
            branch=branch,
            dirty=dirty,
            committed_at=committed_at,
            author=readable(author[:100]) or None,
            subject=readable(subject[:200]),
        )

    def changed_files(
        self,
        base: str,
        head: str,
        *,
        prefix: str = "",
        suffix: str = ".py",
        added: bool = False,
    ) -> list[str]:
        """The files below a folder of the repository that both commits have and that
        differ, relative to it.

        With ``added`` also those that the head alone has.
        """
        options = ["--name-only", "-z", "--no-renames"]
        options.append("--diff-filter=AM" if added else "--diff-filter=M")
        if prefix:
            options.append(f"--relative={prefix}")
        output = self._run("diff", *options, base, head, "--")
        return [name for name in entries_of(output) if name.endswith(suffix)]

    def files_between(self, base: str, head: str) -> list[str]:
        """Every file that two commits do not share, relative to the repository; a
        renamed one under both names.
        """
        return entries_of(self._run(*NAMES_OF_CHANGED, base, head, "--"))

    def commits_between(self, first: str, last: str) -> list[tuple[str, str, str]]:
        """The commits that lead from ``first`` to ``last``, oldest first, each with
        author and subject.

        Every one has ``first`` in its history and the commit before it as a parent. Of
        a merge only itself, unless ``first`` lies on the merged branch: then the commits
        of that branch, and all that the merge adds to them is one commit.
        """
        fields = "--format=%H%x00%P%x00%an%x00%s"
        lines = self._run(
            "log", "--ancestry-path", fields, f"{first}..{last}", "--"
        ).split("\n")
        commits: dict[str, list[str]] = {}
        for line in lines:
            if line:
                commit, *values = readable(line).split("\0", 3)
                commits[commit] = values
        chain: list[tuple[str, str, str]] = []
        commit, end = self.resolve(last), self.resolve(first)
        while commit != end:
            parents, author, subject = commits[commit]
            chain.append((commit, author, subject))
            commit = next(
                parent
                for parent in parents.split()
                if parent == end or parent in commits
            )
        chain.reverse()
        return chain

    def show(self, commit: str, path: str) -> str | None:
        """A file's text at a commit, None when it is not there."""
        try:
            return self._run("show", "--end-of-options", f"{commit}:{path}")
        except RepositoryError:
            return None

    def lines_with(
        self, commit: str, texts: Collection[str], pathspecs: Sequence[str]
    ) -> list[str]:
        """The lines of a commit that contain one of the texts, in the files of its
        pathspecs.
        """
        arguments = ["grep", "-h", "-I", "--fixed-strings"]
        for text in sorted(texts):
            arguments += ["-e", text]
        result = run_git(
            self.root, [*arguments, commit, "--", *pathspecs], limit_seconds=ASK_SECONDS
        )
        if result.code > 1:  # 1: there is none
            raise RepositoryError(
                "git grep failed in {root}: {why}", root=self.root, why=result.errors
            )
        return result.output.splitlines()

    def user(self) -> str:
        """The name git signs commits with. Raises RepositoryError if none is set."""
        try:
            return self._run("config", "user.name").strip()
        except RepositoryError as error:
            raise RepositoryError(
                "git knows no user.name; name the person who accepts it with --by NAME"
            ) from error

    def prefix(self, folder: Path) -> str:
        """The path of a folder inside the repository, e.g. ``models/encoder``, empty
        for its root.
        """
        relative = str(folder.resolve().relative_to(self.root.resolve()))
        if relative == ".":
            return ""
        return relative

    @contextmanager
    def worktrees(
        self,
        commits: Mapping[str, str],
        *,
        link: Sequence[str] | Mapping[str, Sequence[str]],
    ) -> Iterator[dict[str, Path]]:
        """Check out each commit in a separate folder and remove the folders at the end
        in any case.

        No path leads from one of them to another by a name that can be known before.
        ``link`` are paths git ignores (weights, data) that the worktrees share with the
        clone, for all or for each by its name; what one of the commits has is never
        shared. Folders that a killed perfgate left behind are swept away first: their
        lock is free.
        """
        parent = self.common_folder() / WORKTREE_FOLDER
        with held_back():
            guard = _open_folder(parent)
            try:
                with _alone(guard):
                    session, lock = self._open_session(parent)
                try:
                    yield self._check_out(session, commits, link, guard)
                finally:
                    with _alone(guard):
                        self._remove_session(session)
                    os.close(lock)
            finally:
                os.close(guard)

    def _check_out(
        self,
        session: Path,
        commits: Mapping[str, str],
        link: Sequence[str] | Mapping[str, Sequence[str]],
        guard: int,
    ) -> dict[str, Path]:
        links = link
        if not isinstance(links, Mapping):
            links = dict.fromkeys(commits, links)
        tracked: set[str] = set()
        if link:
            for commit in set(commits.values()):
                tracked.update(self.files(commit))
        trees: dict[str, Path] = {}
        for name, commit in commits.items():
            trees[name] = session / secrets.token_hex(8) / name
            entries = [
                entry for entry in links.get(name, ()) if not _holds_any(entry, tracked)
            ]
            with _alone(guard):
                self._add_worktree(trees[name], commit)
            fill_worktree(self.root, trees[name], commit)
            self._link(trees[name], entries)
        return trees

    def files(self, commit: str) -> list[str]:
        """Every file of a commit, relative to the repository."""
        return entries_of(
            self._run("ls-tree", "-r", "--name-only", "-z", "--full-tree", commit)
        )

    def common_folder(self) -> Path:
        """The .git folder that all worktrees of the clone share."""
        return Path(
            self._run("rev-parse", "--path-format=absolute", "--git-common-dir")
        )

    def is_shallow(self) -> bool:
        return self._run("rev-parse", "--is-shallow-repository") == "true"

    def _add_worktree(self, path: Path, commit: str) -> None:
        self._run(
            "worktree", "add", "--quiet", "--detach", str(path), commit, env=WITHOUT_LFS
        )

    def _link(self, path: Path, link: Sequence[str]) -> None:
        for entry in link:
            origin, target = self.root / entry, path / entry
            if origin.exists() and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(origin)

    def _open_session(self, parent: Path) -> tuple[Path, int]:
        """Sweep away abandoned sessions, and return a new folder with its lock held."""
        for folder in parent.iterdir():
            self._sweep(folder)
        session = Path(tempfile.mkdtemp(prefix="", dir=parent))
        lock = os.open(session / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return session, lock

    def _sweep(self, session: Path) -> None:
        if not session.is_dir():
            return
        lock = os.open(session / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        else:
            self._remove_session(session)
        finally:
            os.close(lock)

    def _remove_session(self, session: Path) -> None:
        remove_folder(session)
        # git's record of a worktree without a folder. Not worth failing for: git prunes
        # it by itself in time.
        with suppress(RepositoryError):
            self._run("worktree", "prune", stop_when_interrupted=False)

    def _merge_base(self, commit: str, head: str, revision: str) -> str:
        try:
            return self._run("merge-base", commit, head)
        except RepositoryError:
            remedy = (
                "they share no history; give --base a commit that head descends from"
            )
            if self.is_shallow():
                remedy = (
                    "this is a shallow clone, so the common ancestor is cut off; fetch more history "
                    '(`git fetch --unshallow`; in GitHub Actions `fetch-depth: 0`, in GitLab CI `GIT_DEPTH: "0"`)'
                )
            raise RepositoryError(
                "no merge base of {revision} and head ({head}): {remedy}",
                revision=revision,
                head=head[:10],
                remedy=remedy,
            ) from None

    def _exists(self, revision: str) -> bool:
        return _commit(self.root, revision) is not None

    def _run(
        self,
        *arguments: str,
        env: dict[str, str] | None = None,
        stop_when_interrupted: bool = True,
    ) -> str:
        """Run git in the clone and return its output."""
        result = run_git(
            self.root, arguments, env, stop_when_interrupted=stop_when_interrupted
        )
        if result.code and "invalid value for 'submodule." in result.errors:
            raise HostileRepositoryError(
                "git does not read this commit, because its .gitmodules names a command to run ({why}); perfgate "
                "runs none of it and measures nothing: take `update` out of .gitmodules",
                why=result.errors,
            )
        if result.code:
            complaint = result.errors or f"exit code {result.code}"
            raise RepositoryError(
                "git {arguments} failed in {root}: {complaint}",
                arguments=arguments[0],
                root=self.root,
                complaint=complaint,
            )
        return result.output


def readable(text: str) -> str:
    """Text of a commit without the bytes that are not UTF-8, which no document takes."""
    return text.encode(errors="replace").decode()


def _main_names(configured: str) -> tuple[str, ...]:
    """The names that the main branch may have: the configured name if there is one."""
    return (configured,) if configured else MAIN_NAMES


def _holds_any(entry: str, files: Collection[str]) -> bool:
    """Whether one of some files is a path, or lies below it."""
    path = os.path.normpath(entry)
    if path == "." or path in files:
        return True
    return any(file.startswith(f"{path}/") for file in files)


def _open_folder(folder: Path) -> int:
    """The descriptor of a folder, which is made if it is not there."""
    try:
        folder.mkdir(exist_ok=True)
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise RepositoryError(
            "{parent} cannot be made ({why}); perfgate keeps its worktrees there",
            parent=folder,
            why=error.strerror,
        ) from error


@contextmanager
def _alone(guard: int) -> Iterator[None]:
    """Let no other perfgate change the worktrees of a clone meanwhile.

    A session that has no lock held yet is not one that was left behind, and `git
    worktree prune` removes what another `git worktree add` is just writing.
    """
    fcntl.flock(guard, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(guard, fcntl.LOCK_UN)


def _not_a_clone(start: Path, words: str) -> RepositoryError:
    if "not a git repository" in words:
        return RepositoryError(
            "{start} is not in a git repository; run `git init` and commit, or go to a clone",
            start=start,
        )
    if "must be run in a work tree" in words:
        return RepositoryError(
            "{start} is a bare repository; perfgate needs a work tree", start=start
        )
    return RepositoryError(words)  # e.g. `safe.directory`, with git's own remedy


# --- facts of the clone around a folder, without a checkout


def prefix_of(root: Path) -> str:
    """The path of a folder in its clone, empty or with a slash at the end; outside a
    clone it is the root.
    """
    return _prefix_of(root.absolute())


# A verdict asks for it five times.
@cache
def _prefix_of(folder: Path) -> str:
    return run_git(folder, ["rev-parse", "--show-prefix"]).output


def has_commits(root: Path, *commits: str) -> bool:
    """Whether the clone around a folder has all of some commits, without asking any
    server.
    """
    result = run_git(
        root,
        ["cat-file", "--batch-check=%(objecttype)"],
        _ALL_HERE,
        feed="".join(f"{commit}^{{commit}}\n" for commit in commits).encode(
            errors="surrogateescape"
        ),
    )
    return result.code == 0 and result.output.split("\n") == ["commit"] * len(commits)


def merge_base(root: Path, first: str, second: str) -> str | None:
    """The common ancestor in the clone around a folder; None if its history is too
    short.
    """
    if run_git(root, ["rev-parse", "--is-shallow-repository"]).output != "false":
        return None
    commits = []
    for name in (first, second):
        commit = fetched_tip(root, name) or _commit(root, name)
        if commit is None:
            return None
        commits.append(commit)
    return run_git(root, ["merge-base", *commits], _ALL_HERE).answer


def files_between(root: Path, base: str, head: str) -> list[str] | None:
    """The paths that differ between two commits of the clone, since their merge base;
    None without them.
    """
    if not has_commits(root, base, head):
        return None
    result = run_git(root, [*NAMES_OF_CHANGED, f"{base}...{head}", "--"])
    if result.code:
        return None
    return entries_of(result.output)


def is_behind(root: Path, commit: str, tip: str = "HEAD") -> bool:
    """Whether a commit is the tip, by default the clone's checked-out commit, or an
    ancestor of it, as far as the clone knows.
    """
    return (
        run_git(root, ["merge-base", "--is-ancestor", commit, tip], _ALL_HERE).code == 0
    )


def fetched_tip(root: Path, branch: str) -> str | None:
    """The newest commit of a branch as the clone has fetched it.

    A tag of the same name is not a branch, and an id names a commit even if a branch
    has the same name.
    """
    if COMMIT_ID.fullmatch(branch):
        return None
    return _commit(root, f"refs/remotes/origin/{branch}")


def checked_out(root: Path) -> str | None:
    """The commit that the clone around a folder has checked out; None outside a clone."""
    return _commit(root, "HEAD")


def commit_named(root: Path, commit: str) -> str | None:
    """The whole id of a commit in the clone around a folder; None if it has none of
    this name, or several.
    """
    return _commit(root, commit)


def _commit(root: Path, revision: str) -> str | None:
    return run_git(
        root,
        [
            "rev-parse",
            "--verify",
            "--quiet",
            "--end-of-options",
            f"{revision}^{{commit}}",
        ],
    ).answer
