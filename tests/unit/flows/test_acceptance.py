"""What a report offers to accept can be accepted."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from perfgate.config import Config, load_config
from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.history import History
from perfgate.document.job import JobKind
from perfgate.document.run import RunDocument
from perfgate.errors import UsageError
from perfgate.flows.trust.acceptance import refuse_unknown_metric, store_acceptances
from perfgate.judging.gate.decide import decide
from perfgate.judging.report.render.comment import accepting_metrics
from tests.fakes.jobs import SETTINGS, Does, job_documents
from tests.unit.gate.test_omission import POLICY, function_documents

Documents = tuple[RunDocument, RunDocument]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "perfgate.toml").write_text(
        f'project = "demo"\n[store]\npath = "runs.db"\n{SETTINGS["command"]}', encoding="utf-8"
    )
    return load_config(tmp_path)


def accepted(documents: Documents, policy: Policy, config: Config) -> DecisionDocument:
    """The decision once every cause of it was accepted as its report offers."""
    base, head = documents
    failed = decide(base, head, policy=policy, history=History())
    assert failed.verdict == "FAIL"
    metrics = [metric for metrics in accepting_metrics(failed) for metric in metrics]
    assert metrics
    commit = head.source.commit
    assert commit is not None
    stored = store_acceptances(
        config, {}, commit=commit, metrics=metrics, reason="a larger model", accepted_by="mei", until=None
    )
    return decide(base, head, policy=policy, history=History(accepted=stored))


@pytest.mark.parametrize("kind", get_args(JobKind))
def test_accept__slower_job__all_that_its_report_offers(kind: JobKind, config: Config) -> None:
    documents = job_documents(SETTINGS[kind], Does(), Does(0.3))
    assert accepted(documents, Policy(), config).verdict == "WARN"


def test_accept__slower_calls_and_functions__all_that_their_report_offers(config: Config) -> None:
    documents, _ = function_documents(1.06)
    assert accepted(documents, POLICY, config).verdict == "WARN"


@pytest.mark.parametrize("metric", ["number.step", "op.aten::mm", "module.net", "function.load@encoder", "latency.*"])
def test_refuse_unknown_metric__named_by_a_program_or_a_pattern__known(metric: str) -> None:
    refuse_unknown_metric(metric)


@pytest.mark.parametrize("metric", ["latency.lwo", "numbers.step", "nothing.*"])
def test_refuse_unknown_metric__that_nothing_measures__refused(metric: str) -> None:
    with pytest.raises(UsageError):
        refuse_unknown_metric(metric)
