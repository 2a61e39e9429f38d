"""That .ci/install.py lets uv take packages from where pip is configured to, and leaves to pip what uv cannot do."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / ".ci" / "install.py"


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("install_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # A dataclass looks for its module.
    sys.modules["install_script"] = module
    spec.loader.exec_module(module)
    return module


def test_uv_settings__every_place_of_packages__as_pip_takes_them(script: ModuleType) -> None:
    configured = (
        ":env:.index-url='https://mirror.example/simple'\n"
        "global.index-url='https://other.example/simple'\n"
        "install.find-links='/wheels /more'\n"
        "global.constraint='/etc/limits.txt'\n"
        "global.no-index='false'\n"
        "global.cert='/etc/certificates.pem'\n"
        "global.disable-pip-version-check='1'\n"
        "freeze.timeout='10'\n"
    )
    settings = script.uv_settings(configured, ["torch"])
    assert settings.options == [
        *("--constraint", "/etc/limits.txt"),
        *("--find-links", "/wheels", "--find-links", "/more"),
        *("--index-url", "https://mirror.example/simple"),
    ]
    assert settings.variables == {"SSL_CERT_FILE": "/etc/certificates.pem"}


def test_uv_settings__index_in_the_arguments__replaces_the_configured_one(script: ModuleType) -> None:
    arguments = ["--index-url", "https://download.example/cpu", "torch"]
    assert script.uv_settings("global.index-url='https://mirror.example/simple'\n", arguments).options == []


def test_uv_settings__wheels_alone__no_index(script: ModuleType) -> None:
    settings = script.uv_settings(":env:.no-index='1'\n:env:.find-links='/wheels'\n", [])
    assert settings.options == ["--find-links", "/wheels", "--no-index"]


def test_uv_settings__setting_without_counterpart__none(script: ModuleType) -> None:
    assert script.uv_settings("global.client-cert='/etc/me.pem'\n", []) is None


@pytest.mark.parametrize(
    ("configured", "uv_exit", "expected"),
    [
        ("global.index-url='https://mirror.example'", 0, ["uv --index-url https://mirror.example --quiet torch"]),
        ("global.client-cert='/etc/me.pem'", 0, ["pip --quiet torch"]),
        ("", 2, ["uv --quiet torch", "uv could not install these packages: trying pip", "pip --quiet torch"]),
    ],
)
def test_install__uv_or_pip__whoever_can(tmp_path: Path, configured: str, uv_exit: int, expected: list[str]) -> None:
    """Both tools are stand-ins that print what they are asked for."""
    for tool in ("pip", "uv"):
        (tmp_path / tool).mkdir()
        (tmp_path / tool / "__init__.py").touch()
    (tmp_path / "pip" / "__main__.py").write_text(
        "import sys\n"
        f"print({configured!r} if sys.argv[1] == 'config' else 'pip ' + ' '.join(sys.argv[-2:]), flush=True)\n"
    )
    (tmp_path / "uv" / "__main__.py").write_text(
        f"import sys\nprint('uv', *sys.argv[7:], flush=True)\nsys.exit({uv_exit})\n"
    )
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--quiet", "torch"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == expected
