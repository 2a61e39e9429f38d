"""Versions, compatibility, libraries, nodes and settings of an Ascend machine, below a root of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfgate.errors import MeasuringError
from perfgate.measuring.devices.ascend.machine import (
    LISTED,
    NEEDED,
    cann_for,
    check_cann,
    check_environment,
    check_nodes,
    check_torch,
    missing_libraries,
    read_software,
    refuse_blocking,
    set_env,
)
from perfgate.measuring.devices.host import Host

# The file of CANN 8.5.0 as users print it (`cat ascend_toolkit_install.info`): the version is not the first line.
INSTALL_INFO = "package_name=Ascend-cann-toolkit\nversion={}\ninnerversion=V100R001C23\narch=aarch64\npath=/usr/local\n"
# The driver's version.info (mind-cluster, driver 23.0.7).
DRIVER_INFO = "Version=23.0.7\nascendhal_version=7.35.23\npackage_version=23.0.7\n"


def host(root: Path, environ: dict[str, str] | None = None, **packages: str) -> Host:
    versions = {name.replace("_", "-"): version for name, version in packages.items()}
    return Host(environ=environ or {}, root=root, version=versions.get, package_folder=lambda name: None)


def write(root: Path, path: str, text: str = "") -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("home", "file", "version"),
    [
        ("/usr/local/Ascend/cann-8.5.0", "usr/local/Ascend/cann-8.5.0/aarch64-linux/ascend_toolkit_install.info", "8.5.0"),
        ("/usr/local/Ascend/cann-8.5.0", "usr/local/Ascend/cann-8.5.0/x86_64-linux/ascend_toolkit_install.info", "8.5.0"),
        ("/opt/cann", "opt/cann/ascend_toolkit_install.info", "9.1.0"),
        ("/usr/local/Ascend/ascend-toolkit/latest",
         "usr/local/Ascend/ascend-toolkit/latest/aarch64-linux/ascend_toolkit_install.info", "8.3.RC1"),
        ("/usr/local/Ascend/nnrt/latest", "usr/local/Ascend/nnrt/latest/ascend_nnrt_install.info", "8.1.RC1"),
    ],
)  # fmt: skip
def test_read_software__cann_of_each_layout__its_version(tmp_path: Path, home: str, file: str, version: str) -> None:
    write(tmp_path, file, INSTALL_INFO.format(version))
    for variable in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"):
        found = read_software(host(tmp_path, {variable: home}))
        assert (found.cann, found.cann_home) == (version, home)


def test_read_software__runtime_alone__version_of_its_compiler(tmp_path: Path) -> None:
    write(tmp_path, "opt/cann/compiler/version.info", "Version=8.2.RC1\n")
    assert read_software(host(tmp_path, {"ASCEND_HOME_PATH": "/opt/cann"})).cann == "8.2.RC1"


def test_read_software__driver_and_packages__their_versions(tmp_path: Path) -> None:
    write(tmp_path, "usr/local/Ascend/driver/version.info", DRIVER_INFO)
    write(tmp_path, "usr/local/Ascend/firmware/version.info", "Version=7.1.0.7.220\n")
    found = read_software(host(tmp_path, torch="2.7.1+cpu", torch_npu="2.7.1.post2"))
    assert (found.driver, found.firmware, found.torch, found.torch_npu) == (
        "23.0.7",
        "7.1.0.7.220",
        "2.7.1+cpu",
        "2.7.1.post2",
    )


def test_read_software__nothing_there__nothing_known(tmp_path: Path) -> None:
    found = read_software(host(tmp_path, {"ASCEND_HOME_PATH": "/gone"}))
    assert (found.cann, found.driver, found.firmware, found.torch_npu, found.cann_installed) == (
        None,
        None,
        None,
        None,
        [],
    )


def test_read_software__cann_not_in_the_environment__where_it_lies(tmp_path: Path) -> None:
    write(
        tmp_path, "usr/local/Ascend/cann-8.5.0/x86_64-linux/ascend_toolkit_install.info", INSTALL_INFO.format("8.5.0")
    )
    write(tmp_path, "usr/local/Ascend/ascend-toolkit/8.1.RC1/set_env.sh")
    found = read_software(host(tmp_path))
    assert found.cann is None
    assert found.cann_installed == ["/usr/local/Ascend/cann-8.5.0", "/usr/local/Ascend/ascend-toolkit/8.1.RC1"]


@pytest.mark.parametrize(
    ("home", "command"),
    [
        ("/usr/local/Ascend/cann-8.5.0", "source /usr/local/Ascend/cann-8.5.0/set_env.sh"),
        ("/usr/local/Ascend/ascend-toolkit/latest", "source /usr/local/Ascend/ascend-toolkit/set_env.sh"),
    ],
)
def test_set_env__layout__script_of_that_layout(home: str, command: str) -> None:
    assert set_env(home) == command


@pytest.mark.parametrize(
    ("torch", "torch_npu", "status"),
    [
        ("2.7.1", "2.7.1.post2", "ok"),
        ("2.7.1+cpu", "2.7.1.dev20250901", "ok"),
        ("2.13.0", "2.13.0+gita1b2c3", "ok"),
        ("2.6.0", "2.7.1", "unfit"),
        ("2.7.0", "2.7.1.post4", "attention"),
        ("main", "2.7.1", "unavailable"),
    ],
)
def test_check_torch__versions__each_torch_npu_is_for_one_torch(torch: str, torch_npu: str, status: str) -> None:
    assert check_torch(torch, torch_npu).status == status


@pytest.mark.parametrize(
    ("torch_npu", "cann", "status", "remedy"),
    [
        ("2.7.1.post2", "8.5.0", "ok", None),
        ("2.7.1", "8.3.rc1", "ok", None),
        ("2.7.1.post2+git12", "8.5.0", "ok", None),
        ("2.7.1.post2", "8.3.RC1", "attention", "install CANN 8.5.0, or torch_npu 2.7.1 for CANN 8.3.RC1"),
        ("2.12.0", "8.5.0", "attention", "install CANN 9.1.0"),
        ("2.7.1.dev20250901", "8.5.0", "unavailable", None),
        ("2.7.1rc1", "8.5.0", "unavailable", None),
        ("2.7.1.post3", "8.5.0", "unavailable", None),
        ("2.13.0", "9.1.0", "unavailable", None),
        ("2.7.1.post2", "8.5.1", "unavailable", None),
        ("2.7.1.post2", "8.5.0.alpha002", "unavailable", None),
    ],
)
def test_check_cann__published_or_not__unknown_is_no_mismatch(
    torch_npu: str, cann: str, status: str, remedy: str | None
) -> None:
    found = check_cann(torch_npu, cann)
    assert (found.status, found.remedy) == (status, remedy)


def test_listed__table__no_version_twice_and_each_good_with_its_own() -> None:
    pairs = [(torch_npu, cann) for cann, versions in LISTED.items() for torch_npu in versions]
    assert len(dict(pairs)) == len(pairs)
    assert [cann_for(torch_npu) for torch_npu, _ in pairs] == [cann for _, cann in pairs]
    assert cann_for("2.13.0") is None


@settings(deadline=1000)
@given(st.text(max_size=60), st.text(max_size=60))
def test_check__any_words__never_a_crash_nor_a_mismatch(first: str, second: str) -> None:
    assert check_cann(first, second).status == "unavailable"
    assert check_torch(first, second).status in ("ok", "attention", "unfit", "unavailable")


def test_missing_libraries__nowhere__all(tmp_path: Path) -> None:
    assert missing_libraries(host(tmp_path)) == list(NEEDED)


def test_missing_libraries__through_path_and_configuration__only_what_is_nowhere(tmp_path: Path) -> None:
    write(tmp_path, "cann/lib64/libascendcl.so")
    write(tmp_path, "configured/libhccl.so")
    write(tmp_path, "usr/lib/libgraph.so")
    # ld.so.conf that includes itself, as a broken image had it
    write(tmp_path, "etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\ninclude /etc/ld.so.conf # again\n")
    write(tmp_path, "etc/ld.so.conf.d/ascend.conf", "# of the driver\n/configured\n")
    found = missing_libraries(host(tmp_path, {"LD_LIBRARY_PATH": ":/cann/lib64:/gone"}))
    assert found == ["libacl_op_compiler.so", "libge_runner.so"]


def test_missing_libraries__beside_the_package__found_by_its_rpath(tmp_path: Path) -> None:
    for name in NEEDED:
        write(tmp_path, f"packages/torch_npu.libs/{name}")
    found = missing_libraries(Host(environ={}, root=tmp_path, package_folder=lambda name: tmp_path / "packages"))
    assert found == []


def nodes(root: Path, *names: str) -> None:
    for name in names:
        write(root, f"dev/{name}")


COMMON = ("davinci_manager", "devmm_svm", "hisi_hdc")


@pytest.mark.parametrize(
    ("there", "status", "words"),
    [
        ((*COMMON, "davinci0"), "ok", "/dev/davinci0 can be opened"),
        ((*COMMON, "davinci10", "davinci2"), "ok", "/dev/davinci2, /dev/davinci10"),
        (COMMON, "unfit", "/dev/davinci0"),
        (("davinci0", "davinci_manager", "hisi_hdc"), "unfit", "/dev/devmm_svm is not there"),
        ((), "unfit", "/dev/hisi_hdc are not there"),
    ],
)
def test_check_nodes__present_or_not__which(tmp_path: Path, there: tuple[str, ...], status: str, words: str) -> None:
    nodes(tmp_path, *there)
    found = check_nodes(host(tmp_path))
    assert found.status == status
    assert words in found.seen


@pytest.mark.parametrize(
    ("shut", "status", "words"),
    [
        ({"davinci0", "davinci1"}, "unfit", "may not read and write /dev/davinci0 (uid"),
        ({"davinci1"}, "attention", "1 more cannot"),
        ({"hisi_hdc"}, "unfit", "/dev/hisi_hdc (uid"),
    ],
)
def test_check_nodes__not_ours__whose_and_which_group(tmp_path: Path, shut: set[str], status: str, words: str) -> None:
    nodes(tmp_path, *COMMON, "davinci0", "davinci1")
    found = check_nodes(Host(environ={}, root=tmp_path, may_use=lambda path: path.name not in shut))
    assert found.status == status
    assert words in found.seen
    assert "HwHiAiUser" in (found.remedy or "")


def test_check_nodes__real_permissions__asked_of_the_kernel(tmp_path: Path) -> None:
    nodes(tmp_path, *COMMON, "davinci0")
    assert check_nodes(host(tmp_path)).status == "ok"


@pytest.mark.parametrize("value", ["1", " 1 ", "2", "true"])
def test_refuse_blocking__set__says_what_where_and_what_to_do(value: str) -> None:
    with pytest.raises(
        MeasuringError, match=r"every operator waits for the NPU.*unset ASCEND_LAUNCH_BLOCKING"
    ) as raised:
        refuse_blocking({"ASCEND_LAUNCH_BLOCKING": value})
    assert raised.value.exit_code == 4
    assert check_environment({"ASCEND_LAUNCH_BLOCKING": value})[0].status == "unfit"


@pytest.mark.parametrize("environ", [{}, {"ASCEND_LAUNCH_BLOCKING": "0"}, {"ASCEND_LAUNCH_BLOCKING": ""}])
def test_refuse_blocking__off__nothing(environ: dict[str, str]) -> None:
    refuse_blocking(environ)
    assert [check.status for check in check_environment(environ)] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("name", "slow", "fine"),
    [
        ("ASCEND_GLOBAL_LOG_LEVEL", "1", "3"),
        ("ASCEND_GLOBAL_LOG_LEVEL", "0", "2"),
        ("ASCEND_SLOG_PRINT_TO_STDOUT", "1", "0"),
        ("TASK_QUEUE_ENABLE", "0", "2"),
        ("PYTORCH_NO_NPU_MEMORY_CACHING", "1", "0"),
    ],
)
def test_check_environment__slow_setting__named_with_what_to_set(name: str, slow: str, fine: str) -> None:
    found = check_environment({name: slow})[1]
    assert found.status == "attention"
    assert f"{name}={slow}" in found.seen
    assert name in (found.remedy or "")
    assert check_environment({name: fine})[1].status == "ok"
