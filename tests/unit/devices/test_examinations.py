"""What doctor says of whole machines: each a root folder, an environment and a script of the vendor's tool."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from perfgate.document.doctor import FitnessCheck
from perfgate.errors import MeasuringError
from perfgate.measuring.devices.ascend.machine import DRIVER, NEEDED
from perfgate.measuring.devices.host import Host, Runner
from perfgate.measuring.devices.registry import examine_device

from .test_npu_reading import Script, of_910b
from .test_npu_software import COMMON, INSTALL_INFO, nodes, write
from .test_nvidia_smi import APPS, ROW

HOME = "/usr/local/Ascend/cann-8.5.0"
ENVIRON = {"ASCEND_HOME_PATH": HOME, "LD_LIBRARY_PATH": f"{HOME}/lib64", "PATH": f"{HOME}/bin"}


class Machine:
    """A machine with everything in order; tests take away or add."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environ = dict(ENVIRON)
        self.packages: dict[str, str] = {"torch": "2.7.1", "torch-npu": "2.7.1.post2"}
        self.programs = {
            "npu-smi": root / "usr/local/bin/npu-smi",
            "msprof": write(root, "usr/local/Ascend/cann-8.5.0/tools/profiler/bin/msprof"),
        }
        self.run: Runner = of_910b()
        nodes(root, *COMMON, "davinci0", "davinci1")
        write(root, f"{HOME[1:]}/x86_64-linux/ascend_toolkit_install.info", INSTALL_INFO.format("8.5.0"))
        write(root, f"{HOME[1:]}/tools/profiler/profiler_tool/analysis/msprof/msprof.py")
        write(root, "usr/local/Ascend/driver/version.info", "Version=25.2.0\n")
        for name in (*NEEDED, DRIVER):
            write(root, f"{HOME[1:]}/lib64/{name}")

    def examine(self, device: str = "npu:1") -> dict[str, FitnessCheck]:
        def find(name: str, environ: Mapping[str, str]) -> Path | None:
            return self.programs.get(name)

        found = examine_device(
            device,
            Host(
                environ=self.environ,
                root=self.root,
                run=self.run,
                version=self.packages.get,
                package_folder=lambda name: None,
                find_program=find,
            ),
        )
        assert len({check.name for check in found}) == len(found)
        assert all(check.remedy for check in found if check.status in ("attention", "unfit"))
        return {check.name: check for check in found}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_examine__910b_with_a_neighbour__only_that_and_the_warning(machine: Machine) -> None:
    found = machine.examine()
    assert {name: check.status for name, check in found.items()} == {
        "npu package": "ok",
        "npu driver": "ok",
        "npu cann": "ok",
        "npu libraries": "ok",
        "npu nodes": "ok",
        "npu blocking": "ok",
        "npu settings": "ok",
        "npu msprof": "ok",
        "npu output": "ok",
        "npu health": "attention",
        "npu others": "attention",
        "npu heat": "ok",
        "npu clock": "ok",
    }
    assert "pid 4711 (python, 18.0 GiB); 21.3 of 64.0 GiB in use" in found["npu others"].seen
    assert found["npu heat"].seen == "46 °C, 140 W"
    assert found["npu cann"].seen == "torch_npu 2.7.1.post2, CANN 8.5.0"


def test_examine__output_of_a_later_driver__its_lines_and_what_to_send(machine: Machine) -> None:
    script = of_910b()
    machine.run = script
    script.answers["info"] = "| Unit | Mood |\n| 0    | fine |\n"
    found = machine.examine()["npu output"]
    assert (found.status, found.seen) == (
        "attention",
        'npu-smi info printed no chip that perfgate understands, in 2 lines: "| Unit | Mood |"; "| 0 | fine |"',
    )
    assert "`npu-smi info -m`, `npu-smi info` and `npu-smi info -t common -i 0`" in str(found.remedy)


def test_examine__column_of_a_later_driver__named(machine: Machine) -> None:
    script = of_910b()
    machine.run = script
    script.answers["info"] = script.answers["info"].replace("Hugepages-Usage(page)", "Mood")
    found = machine.examine()["npu output"]
    assert (found.status, found.seen) == (
        "attention",
        "npu-smi 25.2.0 prints what perfgate does not understand: Mood",
    )


def test_examine__virtual_npu__attention(machine: Machine) -> None:
    script = of_910b()
    machine.run = script
    script.answers["info"] = script.answers["info"].replace("910B4-1", "910B4vir05_1c_8g")
    found = machine.examine()["npu slice"]
    assert found.status == "attention"
    assert str(found.seen).startswith("910B4vir05_1c_8g is a virtual NPU")


def test_examine__container_with_a_share_of_a_card__attention(machine: Machine) -> None:
    write(machine.root, "etc/ld.so.preload", "/opt/enpu/vcann-rt/lib/libvruntime.so\n")
    found = machine.examine()["npu slice"]
    assert found.status == "attention"
    assert str(found.seen).startswith("/etc/ld.so.preload loads libvruntime.so")


def test_examine__nothing_of_an_npu__one_line(tmp_path: Path) -> None:
    found = examine_device(
        "npu", Host(environ={}, root=tmp_path, version=lambda name: None, find_program=lambda name, environ: None)
    )
    assert [(check.name, check.status) for check in found] == [("device npu", "unavailable")]
    assert found[0].seen == "no Ascend device: neither torch_npu nor /dev/davinci* nor npu-smi is here"


def test_examine__torch_npu_without_cann__which_libraries_and_what_to_source(machine: Machine) -> None:
    machine.environ = {}
    found = machine.examine()
    assert found["npu libraries"].status == "unfit"
    assert "libascendcl.so, libhccl.so" in found["npu libraries"].seen
    assert found["npu libraries"].remedy == f"source {HOME}/set_env.sh, in the shell that starts perfgate"
    assert (found["npu cann"].status, found["npu cann"].remedy) == ("attention", f"source {HOME}/set_env.sh")


def test_examine__no_cann_at_all__both_layouts_named(tmp_path: Path) -> None:
    found = {
        check.name: check
        for check in examine_device(
            "npu",
            Host(
                environ={},
                root=tmp_path,
                run=Script({}),
                version=lambda name: "2.13.0",
                package_folder=lambda name: None,
                find_program=lambda name, environ: None,
            ),
        )
    }
    assert found["npu libraries"].remedy == (
        "source /usr/local/Ascend/ascend-toolkit/set_env.sh (CANN 8.5 and later: source /usr/local/Ascend/cann/set_env.sh), "
        "in the shell that starts perfgate"
    )
    assert found["npu nodes"].status == "unfit"
    assert found["npu card"].status == "unavailable"
    assert found["npu msprof"].status == "attention"


@pytest.mark.parametrize(
    ("packages", "status", "words"),
    [
        ({"torch": "2.7.1"}, "unfit", "pip install torch_npu==2.7.1"),
        ({"torch-npu": "2.7.1.post2"}, "unfit", "pip install torch==2.7.1"),
        ({"torch": "2.6.0", "torch-npu": "2.7.1"}, "unfit", "pip install torch==2.7.1"),
        ({"torch": "2.7.0", "torch-npu": "2.7.1"}, "attention", "pip install torch==2.7.1"),
        ({"torch": "main", "torch-npu": "2.7.1"}, "unavailable", None),
    ],
)
def test_examine__packages__what_to_install(
    machine: Machine, packages: dict[str, str], status: str, words: str | None
) -> None:
    machine.packages = packages
    found = machine.examine()["npu package"]
    assert found.status == status
    assert (words or "") in (found.remedy or "")


def test_examine__other_cann__attention_with_what_to_install(machine: Machine) -> None:
    machine.packages["torch-npu"] = "2.7.1"
    found = machine.examine()["npu cann"]
    assert (found.status, found.remedy) == (
        "attention",
        "install CANN 8.3.RC1, or torch_npu 2.7.1.post2 for CANN 8.5.0",
    )


def test_examine__unlisted_torch_npu__unavailable_not_a_mismatch(machine: Machine) -> None:
    machine.packages = {"torch": "2.13.0", "torch-npu": "2.13.0"}
    found = machine.examine()["npu cann"]
    assert (found.status, found.remedy) == ("unavailable", None)
    assert "not in the published table" in found.seen


def test_examine__msprof_of_a_runtime__its_script_is_missing(machine: Machine) -> None:
    (machine.root / HOME[1:] / "tools/profiler/profiler_tool/analysis/msprof/msprof.py").unlink()
    found = machine.examine()["npu msprof"]
    assert (found.status, "msprof.py beside it" in found.seen) == ("attention", True)


def test_examine__blocking__unfit(machine: Machine) -> None:
    machine.environ["ASCEND_LAUNCH_BLOCKING"] = "1"
    assert machine.examine()["npu blocking"].status == "unfit"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("dcmi module initialize failed. ret is -8005", "HwHiAiUser"),
        ("Usage: npu-smi info", "its help"),
        ("", "nothing"),
    ],
)
def test_examine__npu_smi_fails__unavailable_with_the_reason(machine: Machine, answer: str, words: str) -> None:
    machine.run = lambda command: answer
    found = machine.examine()["npu card"]
    assert found.status == "unavailable"
    assert words in found.seen


def test_examine__idle_card_with_low_clock__only_said(machine: Machine) -> None:
    machine.run = Script({
        "info -m": "NPU ID  Chip ID  Chip Logic ID  Chip Name\n0  0  0  Ascend\n",
        "info -t common -i 0": "\tChip ID : 0\n\tAicore Usage Rate(%) : 0\n\tAicore Freq(MHZ) : 1800\n"
        "\tAicore curFreq(MHZ) : 800\n",
    })  # fmt: skip
    found = machine.examine("npu")["npu clock"]
    assert found.status == "ok"
    assert found.seen == "44 % of the rated clock (800 of 1800 MHz), idle: the clock under load is another question"


def test_examine__busy_without_a_process__another_container(machine: Machine) -> None:
    machine.run = Script({
        "info -m": "NPU ID  Chip ID  Chip Logic ID  Chip Name\n0  0  0  Ascend\n",
        "info -t common -i 0": "\tChip ID : 0\n\tAicore Usage Rate(%) : 90\n\tAicore Freq(MHZ) : 1800\n"
        "\tAicore curFreq(MHZ) : 800\n",
    })  # fmt: skip
    found = machine.examine("npu")
    assert found["npu others"].status == "attention"
    assert "another container" in (found["npu others"].remedy or "")
    assert (found["npu clock"].status, found["npu heat"].status) == ("attention", "unavailable")


def test_examine__cpu__nothing_to_examine(tmp_path: Path) -> None:
    assert examine_device("cpu", Host(root=tmp_path)) == []


def test_examine__no_device__refused() -> None:
    with pytest.raises(MeasuringError, match="write a kind and an index"):
        examine_device("../npu", Host())


def test_examine__cuda__driver_card_and_why_it_is_slow(machine: Machine) -> None:
    machine.programs["nvidia-smi"] = machine.root / "nvidia-smi"
    machine.run = lambda command: APPS if "compute-apps" in command[1] else ROW.replace("0x0000000000000000", "0x44")
    found = machine.examine("cuda")
    assert found["cuda driver"].seen == "NVIDIA H100 80GB HBM3, driver 550.54.15"
    assert found["cuda throttling"].seen == "slowed down by heat (hardware)"
    assert (found["cuda clock"].status, found["cuda health"].status) == ("attention", "ok")
    assert "pid 815 (python" in found["cuda others"].seen


def test_examine__cuda_at_its_power_limit__a_state_and_no_fault(machine: Machine) -> None:
    machine.programs["nvidia-smi"] = machine.root / "nvidia-smi"
    row = ROW.replace("0x0000000000000000", "0x4").replace("1980, 1980, 3,", "1500, 1980, 99,")
    machine.run = lambda command: APPS if "compute-apps" in command[1] else row
    found = machine.examine("cuda")
    assert "cuda throttling" not in found
    expected = ("ok", "76 % of the rated clock (1500 of 1980 MHz), at its power limit")
    assert (found["cuda clock"].status, found["cuda clock"].seen) == expected


def test_examine__cuda_without_nvidia_smi__unavailable(machine: Machine) -> None:
    assert machine.examine("cuda")["device cuda"].status == "unavailable"
    nodes(machine.root, "nvidiactl")
    assert "nvidia-smi is not on PATH" in machine.examine("cuda")["cuda card"].seen


@pytest.mark.parametrize("kind", ["npu", "cuda", "cpu"])
def test_probe__process__one_line_of_checks_and_no_torch(kind: str) -> None:
    code = (
        "import sys; from perfgate.measuring.devices.probe import main; code = main([sys.argv[1]]);"
        "sys.exit(9 if {'torch', 'torch_npu'} & sys.modules.keys() else code)"
    )
    done = subprocess.run([sys.executable, "-c", code, kind], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert isinstance(json.loads(done.stdout.strip().splitlines()[-1]), list)


def test_probe__no_device__exit_code_4() -> None:
    command = [sys.executable, "-m", "perfgate.measuring.devices.probe", "NPU!"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert (done.returncode, "write a kind" in done.stderr) == (4, True)
