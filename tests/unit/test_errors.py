"""Errors in the user's language; documents and other errors quote them in English."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from perfgate.config import load_config
from perfgate.errors import ConfigError, UsageError
from perfgate.flows.shared.options import parse_steps
from perfgate.locale import Activity, speaking
from tests.command import run_perfgate


def test_error__chinese_is_spoken__shown_in_chinese_and_itself_english(tmp_path: Path) -> None:
    (tmp_path / "perfgate.toml").write_text('workload = "perf.py:net"\n[gat]\n')
    with speaking("zh"), pytest.raises(ConfigError) as caught:
        load_config(tmp_path)
    assert "unknown key 'gat'; did you mean 'gate'?; known keys: project" in str(caught.value)
    assert "未知的键 'gat'；是否想写 'gate'？；已知的键：project" in caught.value.shown
    with pytest.raises(UsageError) as caught:
        parse_steps("zeit")
    assert caught.value.shown == str(caught.value)


def test_error__values_that_have_words_of_their_own__in_the_same_language() -> None:
    with speaking("zh"):
        inner = UsageError("{path} is missing; reinstall perfgate", path="a.toml")
        outer = UsageError("artifact: {error}; nothing is kept", error=inner)
        named = UsageError(
            "no metric {metric!a}{hint}", metric="é", hint=Activity("; did you mean {close!r}?", close="e")
        )
    assert (outer.shown, str(outer)) == (
        "artifact：缺少 a.toml；请重新安装 perfgate；未保存任何内容",
        "artifact: a.toml is missing; reinstall perfgate; nothing is kept",
    )
    assert named.shown == "没有指标 '\\xe9'；是否想写 'e'？"
    assert str(pickle.loads(pickle.dumps(outer))) == str(outer)


def test_error__text_that_is_put_together__may_hold_braces() -> None:
    assert UsageError("{'a': 1} is no number").shown == "{'a': 1} is no number"


def test_command__lang_of_the_locale__its_error_in_chinese(tmp_path: Path) -> None:
    spoken = {**os.environ, "LC_ALL": "", "LANG": "zh_CN.UTF-8"}
    done = run_perfgate("local", "-C", str(tmp_path), environment=spoken)
    assert done.returncode == 2
    assert "不在 git 仓库中；请运行 `git init` 并提交" in done.stderr
