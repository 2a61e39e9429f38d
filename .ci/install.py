"""Install packages with uv, from the same places as pip: `python .ci/install.py ...`.

The arguments are those of `pip install`; the packages go into the environment of this
interpreter. uv needs a fifth of pip's CPU time. pip installs them if uv is missing,
fails, or has no counterpart for one of pip's settings.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# Sections in the lines of `pip config list`; later ones override earlier ones.
SECTIONS = ("global", "install", ":env:")
SETTING = re.compile(r"^(global|install|:env:)\.([a-z-]+)=(.+)$", re.MULTILINE)
# Settings of pip with the same option in uv.
OPTIONS = {
    "constraint": "--constraint",
    "extra-index-url": "--extra-index-url",
    "find-links": "--find-links",
    "index-url": "--index-url",
    "trusted-host": "--allow-insecure-host",
}
# Settings of pip that uv reads from environment variables.
VARIABLES = {
    "cert": ("SSL_CERT_FILE",),
    "default-timeout": ("UV_HTTP_TIMEOUT",),
    "proxy": ("HTTP_PROXY", "HTTPS_PROXY"),
    "timeout": ("UV_HTTP_TIMEOUT",),
}
# Settings of pip that change neither packages nor their versions.
IGNORED = frozenset(
    {
        "cache-dir",
        "disable-pip-version-check",
        "no-cache-dir",
        "no-color",
        "no-input",
        "no-python-version-warning",
        "progress-bar",
        "quiet",
        "require-virtualenv",
        "retries",
        "root-user-action",
        "verbose",
    }
)
FALSE = frozenset({"0", "false", "n", "no", "off", "f"})


@dataclass(frozen=True)
class UvSettings:
    """Options and variables that make uv search where pip would."""

    options: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)


def uv_settings(configured: str, arguments: Sequence[str]) -> UvSettings | None:
    """Translate `pip config list`; None if a setting has no counterpart.

    As in pip, an index in the arguments replaces the configured one.
    """
    settings = UvSettings()
    for name, value in sorted(_by_name(configured).items()):
        if name in OPTIONS:
            option = OPTIONS[name]
            if option == "--index-url" and option in arguments:
                continue
            for each in value.split():
                settings.options.extend([option, each])
        elif name == "no-index":
            if value.lower() not in FALSE:
                settings.options.append("--no-index")
        elif name in VARIABLES:
            for variable in VARIABLES[name]:
                settings.variables[variable] = value
        elif name not in IGNORED:
            return None
    return settings


def _by_name(configured: str) -> dict[str, str]:
    """Return each setting of `pip install` from the section that takes precedence."""
    lines = SETTING.findall(configured)
    lines.sort(key=lambda line: SECTIONS.index(line[0]))
    return {name: str(ast.literal_eval(value)) for _, name, value in lines}


def main(arguments: list[str], environ: Mapping[str, str]) -> int:
    """Install and return the exit code."""
    pip = [sys.executable, "-m", "pip"]
    if importlib.util.find_spec("uv") is not None:
        listed = subprocess.run(
            [*pip, "config", "list"], capture_output=True, text=True, check=True
        )
        settings = uv_settings(listed.stdout, arguments)
        if settings is not None:
            # Like pip, take the newest version of all indexes, not the first index's.
            command = [sys.executable, "-m", "uv", "pip", "install"]
            command += ["--python", sys.executable]
            command += ["--index-strategy", "unsafe-best-match", *settings.options]
            environment = {**environ, **settings.variables}
            done = subprocess.run([*command, *arguments], env=environment, check=False)
            if done.returncode == 0:
                return 0
            sys.stderr.write("uv could not install these packages: trying pip\n")
    command = [*pip, "install", "--disable-pip-version-check", "--no-compile"]
    return subprocess.run([*command, *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
