from __future__ import annotations

import ast

import numpy as np
import tail_errors
import tails


def test_service__every_kind__is_a_module_whose_call_has_the_work() -> None:
    base = ast.unparse(ast.parse(tails.service(None)))
    for name, kind in tails.KINDS.items():
        code = ast.unparse(ast.parse(tails.service(kind)))
        assert f"self.calls % {kind.every} == 0" in code, name
        assert ast.unparse(ast.parse(kind.work)).splitlines()[0] in code, name
    assert "self.calls %" not in base


def test_gate__equal_code_with_a_heavy_tail__does_not_fail() -> None:
    draw = tail_errors.synthetic(np.random.default_rng(3))
    assert not any(tail_errors.gate(draw, None)[0] for _ in range(20))


def test_gate__a_stall_in_every_60th_call__fails() -> None:
    draw = tail_errors.synthetic(np.random.default_rng(3))
    assert all(tail_errors.gate(draw, (60, 6.0))[0] for _ in range(4))
