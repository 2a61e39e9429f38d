"""`perfgate gate` on two run documents, wherever they lie."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from perfgate.document.decision import Policy
from perfgate.document.files import write_document
from perfgate.document.job import JobKind
from perfgate.errors import DocumentError
from perfgate.flows.gate import judge_documents
from tests.fakes.documents import make_run
from tests.fakes.jobs import SETTINGS, Does, job_documents


@pytest.mark.parametrize("kind", get_args(JobKind))
def test_judge_documents__of_a_job_without_a_workload__judged(kind: JobKind, tmp_path: Path) -> None:
    base, head = tmp_path / "base.json", tmp_path / "head.json"
    for path, run in zip((base, head), job_documents(SETTINGS[kind], Does(), Does(0.2))):
        write_document(path, run)
    assert judge_documents(base, head, policy=Policy(), out=None, language="en").verdict == "FAIL"


def test_judge_documents__of_a_workload_and_of_a_job__refused_by_their_names(tmp_path: Path) -> None:
    base, head = tmp_path / "base.json", tmp_path / "head.json"
    write_document(base, make_run("base"))
    write_document(head, job_documents(SETTINGS["command"], Does(), Does())[1])
    with pytest.raises(DocumentError) as caught:
        judge_documents(base, head, policy=Policy(), out=None, language="en")
    assert "has the workload encoder" in str(caught.value)
    assert "the workload bench" in str(caught.value)
