from __future__ import annotations

from pathlib import Path

import pytest

from perfgate.config import Config, WorkloadReference, load_config, parse_config, report_language
from perfgate.errors import ConfigError
from perfgate.locale import speaking
from tests.each import each

PATH = Path("/project/perfgate.toml")
ONE = 'workload = "perf/workload.py:encoder"\n'


def parse(text: str) -> Config:
    return parse_config(text, PATH)


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    return str(caught.value)


def test_load_config__one_line__defaults_and_names(tmp_path: Path) -> None:
    (tmp_path / "perfgate.toml").write_text(ONE)
    config = load_config(tmp_path, environ={})
    assert config.references == (WorkloadReference(name="encoder", file="perf/workload.py", attribute="encoder"),)
    assert config.references[0].text == "perf/workload.py:encoder"
    assert (config.root, config.project, config.device) == (tmp_path, tmp_path.name, "cpu")
    assert (config.measure.python_path, config.measure.preload, config.measure.threads) == ([".", "src"], ["torch"], 0)
    assert (config.gate.looks[0], config.gate.aa_pairs, config.gate.alpha) == (8, 7, 0.01)


def test_load_config__no_file__shows_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path, environ={})
    assert str(caught.value).startswith(f"{tmp_path}/perfgate.toml does not exist; `perfgate init`")
    assert 'workload = "perf/workload.py:encoder"' in str(caught.value)


def test_load_config__not_a_text_file__refused(tmp_path: Path) -> None:
    (tmp_path / "perfgate.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"perfgate\.toml cannot be read: .*utf-8"):
        load_config(tmp_path, environ={})
    (tmp_path / "perfgate.toml").unlink()
    (tmp_path / "perfgate.toml").mkdir()
    with pytest.raises(ConfigError, match=r"cannot be read: .*directory"):
        load_config(tmp_path, environ={})


def test_load_config__device__argument_before_variable_before_file(tmp_path: Path) -> None:
    (tmp_path / "perfgate.toml").write_text('device = "cuda"\n' + ONE)
    assert load_config(tmp_path, environ={}).device == "cuda"
    assert load_config(tmp_path, environ={"PERFGATE_DEVICE": "npu"}).device == "npu"
    assert load_config(tmp_path, environ={"PERFGATE_DEVICE": ""}).device == "cuda"
    assert load_config(tmp_path, device="cpu", environ={"PERFGATE_DEVICE": "npu"}).device == "cpu"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'worklod = "w.py:w"',
            "perfgate.toml: unknown key 'worklod'; did you mean 'workload'?; known keys: project",
        ),
        (ONE + "[gate]\nloks = 8", "[gate] unknown key 'loks'; did you mean 'looks'?"),
        (ONE + "[measure]\nthread = 8", "[measure] unknown key 'thread'; did you mean 'threads'?"),
        (ONE + "[store]\nwhere = 'x'", "[store] unknown key 'where'; known keys: path, main_branch"),
        (ONE + "[gates]\nquads = 8", "unknown key 'gates'; did you mean 'gate'?"),
        (ONE + '[gate.tolerance]\n"latency.lo" = 1', "unknown metric 'latency.lo'; did you mean 'latency.low'?"),
    ],
)
def test_parse_config__unknown_key__did_you_mean(text: str, message: str) -> None:
    assert message in refusal(text)


@each(
    "text, message",
    [
        ("workload = 3", 'workload must be one "FILE:NAME", found 3; write several'),
        (
            "workload = ['a.py:b', 'a.py:c']",
            "found ['a.py:b', 'a.py:c']; write several with their names below [workloads]",
        ),
        (ONE + '[gate]\nquads = "many"', "[gate] quads must be `int | null`, got `str`, found 'many'"),
        (ONE + "[gate]\nquads = 14.0", "[gate] quads must be `int | null`, got `float`, found 14.0"),
        (ONE + "[gate]\nquads = true", "[gate] quads must be `int | null`, got `bool`, found True"),
        (ONE + "[gate]\npairs = 12", "unknown key 'pairs'"),
        (ONE + "[report]\nlanguage = 'fr'", "[report] language must be `en | zh`, found 'fr'"),
        ('[workloads.a]\nserve = "s $PORT"\napi = "rest"', "api must be `chat | completions | http`, found 'rest'"),
        (ONE + "gate = 3", "gate must be `object`, got `int`, found 3"),
        (ONE + "[measure]\npython_path = 'src'", "[measure] python_path must be `array`, got `str`, found 'src'"),
        (ONE + "[measure]\npass_env = [1]", "[measure] pass_env[0] must be `str`, got `int`, found 1"),
        (
            ONE + '[limits]\n"batch.los.warning" = 1',
            "unknown limit 'batch.los.warning'; did you mean 'batch.loss.warning'?",
        ),
        (
            ONE + '[budget]\n"latency.p98" = "2 ms"',
            "[budget] unknown metric 'latency.p98'; did you mean 'latency.p99'?",
        ),
        (ONE + '[budget]\n"latency.p99" = "2 MiB"', "[budget] latency.p99: '2 MiB' is in B"),
        (ONE + "[limits]\nbatch = 'x'", "Expected `float | object`, got `str` - at `$.limits[...]`"),
        ("[workloads]\nw = 3", "Expected `str | object`, got `int` - at `$.workloads[...]`"),
        (ONE + "project = 2020-01-01", "project must be `str`, got `date`"),
    ],
)
def test_parse_config__wrong_type__names_the_key(text: str, message: str) -> None:
    assert message in refusal(text)


def test_parse_config__value_out_of_range__said_in_chinese_too() -> None:
    with speaking("zh"), pytest.raises(ConfigError) as caught:
        parse(ONE + "[gate]\nalpha = 0.7")
    assert caught.value.shown == "/project/perfgate.toml：[gate] alpha 应为 `float` < 0.5，实际为 0.7"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("workload = \n", "/project/perfgate.toml is not valid TOML: Invalid value (at line 1"),
        ('workload = "a"\nworkload = "b"', "is not valid TOML: Cannot overwrite a value"),
        ("a = " + "[" * 100_000, "is not valid TOML"),
    ],
)
def test_parse_config__not_toml__says_where(text: str, message: str) -> None:
    assert message in refusal(text)


@each(
    "line, message",
    [
        ("[gate]\nlooks = [7, 12]", "[gate] looks[0] must be `int` >= 8, found 7"),
        ("[gate]\nlooks = []", "[gate] looks must be `array` of length >= 1, found []"),
        ("[gate]\nlooks = [12, 8]", "[gate] looks must be growing numbers of pairs"),
        ("[gate]\nlooks = [8, 8]", "[gate] looks must be growing numbers of pairs"),
        (
            "[measure]\ncopies = [2, 4]",
            "[measure] copies must grow from 1 to at most 64, found [2, 4]; write e.g. [1, 2, 4]",
        ),
        ("[measure]\ncopies = [1, 4, 4]", "[measure] copies must grow from 1 to at most 64"),
        ("[measure]\ncopies = [1, 65]", "[measure] copies must grow from 1 to at most 64"),
        ("[measure]\ncopies = [1]", "[measure] copies must be `array` of length >= 2"),
        ("[measure]\ncopies = 65", "[measure] copies must be `int` <= 64, found 65"),
        ("[gate]\nbudget = 0", "[gate] budget must be `float` > 0.0, found 0"),
        ("[gate]\naa_pairs = 4", "[gate] aa_pairs must be `int` >= 5, found 4"),
        ("[gate]\nquads = 1", "[gate] quads must be `int` >= 2, found 1"),
        ("[gate]\nalpha = 0", "[gate] alpha must be `float` > 0.0, found 0"),
        ("[gate]\nalpha = nan", "[gate] alpha must be `float` > 0.0, found nan"),
        ("[gate]\nalpha_ok = 0.5", "[gate] alpha_ok must be `float` < 0.5, found 0.5"),
        ("[gate]\nok_margin = -0.1", "[gate] ok_margin must be `float` >= 0.0, found -0.1"),
        ("[gate]\nok_margin = nan", "[gate] ok_margin must be `float` >= 0.0, found nan"),
        ("[gate]\nblock_seconds = 0", "[gate] block_seconds must be `float` > 0.0, found 0"),
        ("[gate]\nblock_seconds = inf", "[gate] block_seconds must be `float` <= 60.0, found inf"),
        ("[gate]\ncpus = -1", "[gate] cpus must be `int` >= 0, found -1"),
        ("[measure]\nthreads = -1", "[measure] threads must be `int` >= 0, found -1"),
        ("[measure]\nload_timeout = 0", "[measure] load_timeout must be `float` > 0.0, found 0"),
        ("[measure]\nstep_timeout = nan", "[measure] step_timeout must be `float` > 0.0, found nan"),
        ("[measure]\nmemory_limit = -1", "[measure] memory_limit must be `int` >= 0, found -1"),
        ("[measure]\nseed = -1", "[measure] seed must be `int` >= 0, found -1"),
        ('[gate.tolerance]\n"latency.low" = -0.1', "latency.low must not be negative or infinite, found -0.1"),
        ('[gate.tolerance]\n"latency.low" = nan', "latency.low must not be negative or infinite, found nan"),
        ('[gate.tolerance]\n"ops.count:aten::mm" = inf', "ops.count:aten::mm must not be negative or infinite"),
        ('[limits]\n"batch.loss.warning" = nan', "[limits] batch.loss.warning must be a finite number, found nan"),
    ],
)
def test_parse_config__value_out_of_range__says_the_range(line: str, message: str) -> None:
    assert message in refusal(ONE + line)


@pytest.mark.parametrize("table", ["gate.tolerance", "limits"])
def test_parse_config__name_with_a_dot_unquoted__says_how_to_write_it(table: str) -> None:
    message = refusal(f"{ONE}[{table}]\nlatency.low = 0.05")
    assert f'[{table}] a name with a dot needs quotation marks; write "latency.low" = …' in message


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("perf/workload.py", 'must read "FILE.py:NAME", e.g. "perf/workload.py:encoder"'),
        ("perf/workload.py:", 'must read "FILE.py:NAME"'),
        (":encoder", 'must read "FILE.py:NAME"'),
        ("perf/workload.py:my-encoder", 'must read "FILE.py:NAME"'),
        (
            "/etc/workload.py:encoder",
            "workload file '/etc/workload.py' must be relative to /project and stay",
        ),
        ("../workload.py:encoder", "must be relative to /project and stay inside it"),
        ("a/../../workload.py:encoder", "must be relative to /project and stay inside it"),
    ],
)
def test_parse_config__workload_reference_in_a_wrong_form__refused(reference: str, message: str) -> None:
    assert message in refusal(f'workload = "{reference}"')


def test_parse_config__no_workload__says_what_to_write() -> None:
    assert 'names no workload; write e.g. workload = "perf/workload.py:encoder"' in refusal("")


@pytest.mark.parametrize("name", ["..", ".hidden", "-x", "a/b", "a b", "", "x" * 101])
def test_parse_config__workload_name_that_is_no_file_name__refused(name: str) -> None:
    assert f"workload name {name!r} must be letters, digits" in refusal(f'[workloads]\n"{name}" = "w.py:w"')


def test_parse_config__several_workloads__in_the_order_of_the_file() -> None:
    config = parse(ONE + '[workloads]\nlong = "w.py:long"\n"2d-v1.5" = "w.py:flat"')
    assert [reference.name for reference in config.references] == ["encoder", "long", "2d-v1.5"]


def test_parse_config__one_name_for_two_workloads__refused() -> None:
    assert "workload 'encoder' is defined twice" in refusal(ONE + '[workloads]\nencoder = "other.py:encoder"')
    assert len(parse(ONE + '[workloads]\nencoder = "perf/workload.py:encoder"').references) == 1


def test_selected__names__in_the_order_asked_for() -> None:
    config = parse('[workloads]\na = "w.py:a"\nb = "w.py:b"')
    assert [reference.name for reference in config.selected(("b", "a"))] == ["b", "a"]
    assert [reference.name for reference in config.selected(())] == ["a", "b"]


def test_selected__unknown_name__did_you_mean() -> None:
    with pytest.raises(ConfigError, match=r"no workload 'encodr' in perfgate\.toml; did you mean 'encoder'\?"):
        parse(ONE).selected(("encodr",))


@pytest.mark.parametrize(
    ("copies", "counts"),
    [("0", []), ("1", [1]), ("2", [1, 2]), ("6", [1, 2, 4, 6]), ("8", [1, 2, 4, 8]), ("[1, 3]", [1, 3])],
)
def test_copy_counts__number_or_list__what_runs_at_the_same_time(copies: str, counts: list[int]) -> None:
    config = parse_config(f"{ONE}[measure]\ncopies = {copies}", Path("perfgate.toml"))
    assert config.measure.copy_counts == counts


def test_policy__tolerances_given__as_in_the_file() -> None:
    policy = parse(ONE + '[gate]\nok_margin = 0.03\n[gate.tolerance]\n"memory.peak" = 0.1').policy()
    assert (policy.alpha, policy.alpha_ok, policy.ok_margin) == (0.01, 0.05, 0.03)
    assert policy.tolerances == {"memory.peak": 0.1}


@pytest.mark.parametrize(
    ("lines", "cpus"),
    [("", 1), ('device = "npu:1"\n', 4), ('device = "cuda"\n', 4), ('device = "npu"\n[gate]\ncpus = 0\n', 0)],
)
def test_pair_cpus__device__one_for_a_cpu_and_several_for_the_threads_of_an_accelerator(lines: str, cpus: int) -> None:
    assert parse(ONE + lines).pair_cpus() == cpus


def test_load_config__limit_by_pattern__every_name_it_fits_and_the_full_name_wins() -> None:
    limits = parse(ONE + '[limits]\n"transfer.share.*" = 0.3\n"transfer.share.severe" = 0.5').limit_values
    assert limits == {"transfer.share.warning": 0.3, "transfer.share.severe": 0.5}


def test_policy__budget__in_base_units() -> None:
    (budget,) = parse(ONE + '[budget]\n"latency.p99@encoder" = "< 20 ms at 50 QPS"').policy().budgets
    assert (budget.metric, budget.bound, budget.workload, budget.rate) == ("latency.p99", 0.02, "encoder", 50.0)


@pytest.mark.parametrize(
    ("given", "environment", "written", "language"),
    [
        ("en", "zh", "zh", "en"),
        (None, "zh", "en", "zh"),
        (None, "", "zh", "zh"),
        (None, None, "zh", "zh"),
        (None, None, "en", "en"),
        (None, None, None, "zh"),
    ],
)
def test_report_language__first_of_option_environment_file_locale(
    tmp_path: Path, given: str | None, environment: str | None, written: str | None, language: str
) -> None:
    if written is not None:
        text = f'workload = "perf/workload.py:encoder"\n[report]\nlanguage = "{written}"\n'
        (tmp_path / "perfgate.toml").write_text(text, encoding="utf-8")
    environ = {"LANG": "zh_CN.UTF-8"} | ({} if environment is None else {"PERFGATE_LANG": environment})
    assert report_language(given, tmp_path, environ=environ) == language


def test_report_language__unknown__error_that_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="PERFGATE_LANG is 'fr'; the languages are en, zh"):
        report_language(None, tmp_path, environ={"PERFGATE_LANG": "fr"})


def test_parse_config__expected_kernels__as_written() -> None:
    assert parse(ONE + '[expect]\nkernels = ["FlashAttention*", "mm"]').expect.kernels == ["FlashAttention*", "mm"]
    assert parse(ONE).expect.kernels == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[expect]\nkernel = ['a']", "did you mean 'kernels'?"),
        ('[expect]\nkernels = [""]', "kernels[0] must be `str` of length >= 1, found ''"),
    ],
)
def test_parse_config__expected_kernels_written_wrong__refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(ONE + text)

    assert message in str(caught.value)


def test_limits__gating__in_the_policy_with_its_own_number_or_the_checklists() -> None:
    config = parse(
        ONE
        + '[limits]\n"ops.kernel_time.warning" = { value = 0.02, gating = true }\n"transfer.share.*" = { gating = true }\n'
        '"transfer.share.severe" = 0.5\n[expect]\nkernels = ["Flash*"]\n'
    )
    assert config.limit_values == {"ops.kernel_time.warning": 0.02, "transfer.share.severe": 0.5}
    assert config.policy().limits == {"transfer.share.warning": 0.05, "ops.kernel_time.warning": 0.02}
    assert config.policy().kernels == ["Flash*"]
    assert config.policy().judges_alone


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        ('[limits]\n"transfer.share.severe" = { gating = true }\n', "[limits] transfer.share.severe"),
        ('[expect]\nkernels = ["Flash*"]\n', "[expect] kernels"),
    ],
)
def test_rules__of_a_checklist_that_no_job_has__refused(rule: str, named: str) -> None:
    job = '[workloads.train]\ncommand = "python train.py"\n'
    assert f"{named} judges the checklist of a workload that is a function" in refusal(job + rule)
    assert parse(ONE + job + rule).policy().judges_alone


def test_limits__no_rule_that_gates__judges_nothing_alone() -> None:
    assert not parse(ONE + '[limits]\n"transfer.share.*" = 0.5\n').policy().judges_alone


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('"graph.recompiles.warning" = { gating = true }', "graph.recompiles.warning cannot gate"),
        ('"batch.*" = { gating = true }', "batch.knee.gain cannot gate"),
        (
            '"batch.los.warning" = { gating = true }',
            "unknown limit 'batch.los.warning'; did you mean 'batch.loss.warning'?",
        ),
        ('"batch.loss.warning" = { gatin = true }', "unknown key 'gatin'; did you mean 'gating'?"),
        ('"batch.loss.warning" = { value = "5 %" }', "Expected `float | null`, got `str`"),
        ("batch.loss = 0.1", 'write "batch.loss" = …'),
    ],
)
def test_limits__gating_written_wrongly__says_what_is_wrong(line: str, message: str) -> None:
    assert message in refusal(ONE + "[limits]\n" + line)
