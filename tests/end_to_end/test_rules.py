"""Rules that need no base, by the real commands: one recording, a run on this machine, and the head of a check."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import Clone, Perfgate
from tests.fakes.recordings import STEP, kineto_recording
from tests.fakes.wording import worded

KERNEL_TIME = '[limits]\n"ops.kernel_time.warning" = { value = 0.0002, gating = true }\n'


def _decision(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "decision.json").read_text()))


@pytest.fixture
def recorded(perfgate: Perfgate, tmp_path: Path) -> Path:
    """Make a run document of a recording, in a folder without a perfgate.toml."""
    kineto_recording(tmp_path / "trace.json", steps=(STEP,) * 3)
    assert perfgate("run", "--from-profile", "trace.json", "--out", "run", cwd=tmp_path).returncode == 0
    return tmp_path


@pytest.mark.parametrize(
    ("rules", "code", "said"),
    [
        (
            KERNEL_TIME,
            1,
            "FAIL – longest single run of a kernel of profile/rank 0 is 250 µs, 25.0 % above the limit of 200 µs "
            "(ops.kernel_time.warning: a single run of ampere_sgemm_128x64_tn)",
        ),
        (
            '[expect]\nkernels = ["ampere_sgemm_*", "FlashAttention*"]\n',
            1,
            "FAIL – no kernel named FlashAttention* ran, as perfgate.toml expects; most similar names: ",
        ),
        ('[budget]\n"utilization.busy" = "> 90 %"\n', 1, "FAIL – device utilization of profile/rank 0 is "),
        (
            KERNEL_TIME.replace("0.0002", "0.05") + '[expect]\nkernels = ["nccl*"]\n',
            0,
            "PASS – 2 rules of perfgate.toml met",
        ),
        (
            '[limits]\n"memory.faults.warning" = { gating = true }\n',
            3,
            "INCONCLUSIVE – page faults on the host per call of profile/rank 0 could not be checked against perfgate.toml",
        ),
    ],
)
def test_gate__one_recording_and_no_base__judged_by_the_nearest_perfgate_toml(
    perfgate: Perfgate, recorded: Path, rules: str, code: int, said: str
) -> None:
    (recorded / "perfgate.toml").write_text(rules)
    (recorded / "below").mkdir()
    done = perfgate("gate", "--head", "../run", "--out", "../gate", cwd=recorded / "below")
    assert (done.returncode, done.stderr) == (code, "")
    assert " ".join(done.stdout.split()).startswith(said)
    assert _decision(recorded / "gate")["sides"]["comparing"] == "rules"
    title = (recorded / "gate" / "comment.md").read_text().replace("`", "")
    assert f" perfgate: {said}" in title
    assert (recorded / "gate" / "head" / "run.json").is_file()


def test_gate__config_is_named__its_rules_and_not_the_nearest(perfgate: Perfgate, recorded: Path) -> None:
    (recorded / "perfgate.toml").write_text('[expect]\nkernels = ["nccl*"]\n')
    (recorded / "strict.toml").write_text('[expect]\nkernels = ["Flash*"]\n')
    for config, code in (("perfgate.toml", 0), ("strict.toml", 1), (".", 0)):
        done = perfgate("gate", "--head", "run/run.json", "--config", config, cwd=recorded)
        assert done.returncode == code, done.stderr


@pytest.mark.parametrize(
    ("rules", "message"),
    [(None, "there is no perfgate.toml here or above"), ("[limits]\n", "has no rule that judges a run without a base")],
)
def test_gate__head_without_rules__exit_2_and_what_to_write(
    perfgate: Perfgate, recorded: Path, rules: str, message: str
) -> None:
    if rules is not None:
        (recorded / "perfgate.toml").write_text(rules)
    done = perfgate("gate", "--head", "run", cwd=recorded)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())


@pytest.mark.slow
def test_run__rules__exit_code_last_line_decision_and_what_ci_hosts_show(
    perfgate: Perfgate, failing: Callable[..., Path]
) -> None:
    root = failing("well", settings='[expect]\nkernels = ["aten::no_such_operator"]\n')
    out = root / "perfgate-out"
    done = perfgate("run", "--quick", "--steps", "4", cwd=root)
    assert done.returncode == 1, done.stderr
    title = (
        "perfgate: FAIL – no kernel named aten::no_such_operator ran, as perfgate.toml expects; most similar names: "
    )
    assert done.stdout.splitlines()[-1].startswith(title)
    assert _decision(out)["verdict"] == "FAIL"
    assert "aten::no_such_operator" in (out / "comment.md").read_text()
    assert perfgate("report", "perfgate-out", "--junit", "junit.xml", cwd=root).returncode == 0
    assert "ops.expected_kernels" in (root / "junit.xml").read_text()

    (root / "perfgate.toml").write_text((root / "perfgate.toml").read_text().replace("no_such_operator", "*"))
    kept = perfgate("run", "--quick", "--steps", "4", cwd=root)
    assert (kept.returncode, kept.stdout.splitlines()[-1]) == (0, "perfgate: PASS – 1 rule of perfgate.toml met")
    left_out = perfgate("run", "--quick", "--steps", "2", cwd=root)
    assert left_out.returncode == 3
    assert "step 4 stored no kernel names; select the step with --steps" in left_out.stdout.splitlines()[-1]

    (root / "perfgate.toml").write_text((root / "perfgate.toml").read_text().partition("[expect]")[0])
    assert perfgate("run", "--quick", "--steps", "2", cwd=root).returncode == 0
    assert not (out / "decision.json").exists()


@pytest.mark.slow
def test_check__head_runs_no_expected_kernel__fails_by_the_rule_of_the_base_that_the_change_takes_back(
    perfgate: Perfgate, clone: Clone, tmp_path: Path
) -> None:
    settings = clone.root / "perfgate.toml"
    text = settings.read_text()
    clone.git("checkout", "-q", "main")
    settings.write_text(text + '[expect]\nkernels = ["aten::relu"]\n')
    clone.commit("a rule")
    clone.git("checkout", "-q", "-B", "feature")
    settings.write_text(text)
    clone.commit("another activation and no rule", model=("torch.relu(y)", "torch.clamp(y, min=0.0)"))
    done = perfgate("check", "--base", "main", "--out", str(tmp_path / "out"), "--steps", "4", cwd=clone.root)
    assert done.returncode == 1, done.stderr
    decision = _decision(tmp_path / "out")
    assert "regressed: small ops.expected_kernels" in map(worded, decision["reasons"])
    assert "no kernel named" in (tmp_path / "out" / "comment.md").read_text().splitlines()[2]
