"""Read perfgate.toml and code of commits from the git objects of the clone or the
forge, without a checkout.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from perfgate.conductor.code.code_changes import (
    MAX_BYTES,
    PACKAGE_FOLDERS,
    PLATFORM,
    READERS,
    imported_packages,
    reads_code,
    same_code,
)
from perfgate.config import CONFIG_NAME, Config, parse_config
from perfgate.errors import ConfigError, RepositoryError
from perfgate.git.commands import contents_of, run_git
from perfgate.git.repository import has_commits, prefix_of
from perfgate.git.settings import alone_in, as_environment, authorization, password_of
from perfgate.judging.forge.url import is_loopback
from perfgate.judging.store.store import GitAccess

FETCH_SECONDS = 300.0


@contextmanager
def fetched(
    commits: Sequence[str], access: GitAccess, *, with_contents: bool = False
) -> Iterator[tuple[Path, Mapping[str, str]]]:
    """Fetch commits without their history; file contents stay on the server until they
    are read, unless all are needed.

    Yields the scratch repository and the environment that git needs there. Raises
    RepositoryError if a commit is not available.
    """
    with tempfile.TemporaryDirectory(prefix="perfgate-fetched-") as folder:
        scratch = Path(folder)
        environ = {**_settings(access), **alone_in(scratch)}
        git_output(scratch, ["init", "--quiet", "--bare", "--template=", "."], environ)
        git_output(scratch, ["remote", "add", "origin", access.repository], environ)
        fetch = ["fetch", "--quiet", "--no-tags", "--depth=1"]
        if not with_contents:
            fetch.append("--filter=blob:none")
        try:
            git_output(scratch, [*fetch, "origin", *commits], environ)
        except RepositoryError as error:
            names = " and ".join(commit[:12] for commit in commits)
            raise RepositoryError(
                "the commit {names} could not be fetched ({error}); give the job read permission for the repository's "
                "contents, or check the commit out before",
                names=names,
                error=error,
            ) from None
        yield scratch, environ


def _settings(access: GitAccess) -> dict[str, str]:
    url = access.repository
    settings = [
        # Only for URLs below this one; the empty value first removes headers that a
        # checkout action left.
        (f"http.{url}.extraHeader", ""),
        (
            f"http.{url}.extraHeader",
            authorization(password_of(access.user, access.token)),
        ),
        ("http.followRedirects", "false"),
        ("credential.helper", ""),
        ("protocol.allow", "never"),
        ("protocol.https.allow", "always"),
    ]
    if is_loopback(url):
        # A token is sent unencrypted only on this machine, and then bypasses the proxy
        # of the environment.
        settings += [("protocol.http.allow", "always"), ("http.proxy", "")]
    if access.ca_file:
        settings.append((f"http.{url}.sslCAInfo", access.ca_file))
    return {"GIT_ASKPASS": "", "SSH_ASKPASS": "", **as_environment(settings)}


def git_output(
    folder: Path, arguments: Sequence[str], environ: Mapping[str, str]
) -> str:
    """The output of a git command.

    Raises RepositoryError with git's message if it fails.
    """
    return (
        git_bytes(folder, arguments, environ)
        .decode(errors="surrogateescape")
        .rstrip("\n")
    )


def git_bytes(
    folder: Path,
    arguments: Sequence[str],
    environ: Mapping[str, str],
    *,
    feed: bytes = b"",
) -> bytes:
    """The raw output of a git command with ``feed`` as its input.

    Raises RepositoryError as ``git_output`` does.
    """
    result = run_git(folder, arguments, environ, feed=feed, limit_seconds=FETCH_SECONDS)
    if result.code:
        raise RepositoryError(
            "git {command}: {errors}",
            command=arguments[0],
            errors=result.errors[:300] or f"exit code {result.code}",
        )
    return result.data


class BaseConfig(NamedTuple):
    """The perfgate.toml of a commit, None if it has none; ``unreadable`` is the error
    if it cannot be parsed.
    """

    config: Config | None = None
    unreadable: str | None = None


def config_at(root: Path, commit: str, access: GitAccess | None) -> BaseConfig:
    """The configuration that a commit has for the folder ``root``.

    Raises RepositoryError if the commit is not in the clone around ``root`` and cannot
    be fetched.
    """
    path = prefix_of(root) + CONFIG_NAME
    if has_commits(root, commit):
        return _read(root, commit, path, {}, root)
    if access is None:
        raise RepositoryError(
            "the commit {commit} is not in the clone at {root}; fetch it first",
            commit=commit[:12],
            root=root,
        )
    with fetched([commit], access) as (scratch, environ):
        return _read(scratch, commit, path, environ, root)


def _read(
    repository: Path, commit: str, path: str, environ: Mapping[str, str], root: Path
) -> BaseConfig:
    if not git_output(
        repository, ["ls-tree", "--full-tree", commit, "--", path], environ
    ):
        return BaseConfig()
    text = git_output(
        repository, ["show", "--end-of-options", f"{commit}:{path}"], environ
    )
    try:
        return BaseConfig(parse_config(text, root / CONFIG_NAME))
    except ConfigError as error:
        return BaseConfig(unreadable=str(error).replace(f"{root}/", ""))


# A change of more files than this is measured, because comparing the code would take
# longer.
MOST_FILES = 200
# As `git diff --raw -z` prints one file that both commits have (git-diff, "Raw output
# format").
_MODIFIED = re.compile(rb":(\d{6}) (\d{6}) ([0-9a-f]+) ([0-9a-f]+) M\0([^\0]+)\0")
_REGULAR = (b"100644", b"100755")


def same_code_between(
    root: Path,
    base: str,
    head: str,
    files: Sequence[str],
    access: GitAccess | None = None,
) -> bool:
    """Whether these files have the same code in both commits; False if their contents
    are not available.

    Docstrings and comments are code too if anything in the repository, or a package
    that it imports, may read them.

    The commits come from the clone around ``root``, or else, with ``access``, from the
    forge.
    """
    if len(files) > MOST_FILES or any(not file.endswith(".py") for file in files):
        return False
    try:
        if has_commits(root, base, head):
            return _same_code(root, base, head, files, {})
        if access is not None:
            with fetched([base, head], access, with_contents=True) as (
                scratch,
                environ,
            ):
                return _same_code(scratch, base, head, files, environ)
    except RepositoryError:
        pass
    return False


def _same_code(
    repository: Path,
    base: str,
    head: str,
    files: Sequence[str],
    environ: Mapping[str, str],
) -> bool:
    modified = _modified(repository, base, head, environ)
    if not modified.keys() >= set(files):
        return False
    pairs = [modified[file] for file in files]
    sizes = _batch(
        repository, sorted(set().union(*pairs)), environ, "--batch-check=%(objectsize)"
    ).split()
    if any(int(size) > MAX_BYTES for size in sizes):
        return False
    for pair in pairs:
        (_, before), (_, after) = contents_of(
            _batch(repository, pair, environ, "--batch")
        )
        if not same_code(before, after):
            return False
    return not any(
        _text_of_code_is_read(repository, commit, environ) for commit in (base, head)
    )


def _text_of_code_is_read(
    repository: Path, commit: str, environ: Mapping[str, str]
) -> bool:
    """Whether Python code of a commit may read docstrings or source, or imports a
    package that may.
    """
    search = ["grep", "-h", "-I", "--fixed-strings"]
    for text in (*READERS, "import"):
        search += ["-e", text]
    search += [commit, "--", "*.py"]
    process = run_git(repository, search, environ, limit_seconds=FETCH_SECONDS)
    if process.code > 1:  # 1: there is none
        return True
    lines = process.data.decode(errors="replace").splitlines()
    if any(reads_code(line) for line in lines):
        return True
    # The top-level names by which files of the project are imported from its root, or
    # from a folder for packages.
    listing = ["ls-tree", "-r", "--name-only", "-z", "--full-tree", commit]
    files = git_bytes(repository, listing, environ).decode(errors="replace")
    modules = {*sys.stdlib_module_names, *PLATFORM}
    for file in files.split("\0"):
        folder, _, rest = file.partition("/")
        inside = rest if folder in PACKAGE_FOLDERS and rest else file
        modules.add(inside.partition("/")[0].removesuffix(".py"))
    return any(imported_packages(line) - modules for line in lines)


def _batch(
    repository: Path, objects: Sequence[bytes], environ: Mapping[str, str], option: str
) -> bytes:
    return git_bytes(
        repository, ["cat-file", option], environ, feed=b"\n".join([*objects, b""])
    )


def _modified(
    repository: Path, base: str, head: str, environ: Mapping[str, str]
) -> dict[str, tuple[bytes, bytes]]:
    """The ids of the contents of the regular files that differ, before and after."""
    listing = ["diff", "--raw", "-z", "--no-abbrev", "--no-renames"]
    listing += ["--diff-filter=M", base, head, "--"]
    modified: dict[str, tuple[bytes, bytes]] = {}
    for old_mode, new_mode, before, after, path in _MODIFIED.findall(
        git_bytes(repository, listing, environ)
    ):
        if old_mode == new_mode and new_mode in _REGULAR:
            modified[path.decode(errors="surrogateescape")] = before, after
    return modified
