"""The generated traces of benchmarks/trace: two layouts of the same launches, so both readers must say the same."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path

from perfgate import trace
from perfgate.trace.analysis.gaps import device_gaps

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "trace" / "generate.py"


def test_generate__two_layouts__same_gaps_causes_and_steps(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("generate_traces", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    found = []
    for layout, name in (("kineto", "a.pt.trace.json"), ("trace_view", "trace_view.json")):
        generate.write(tmp_path / name, layout=layout, events=6000)
        (timeline,) = trace.read(tmp_path / name).timelines
        gaps = device_gaps(timeline.events)
        assert gaps is not None
        found.append((gaps.busy_ns, gaps.gaps, [step.number for step in timeline.steps or ()]))

    assert found[0] == found[1]
    assert found[0][2] == [1, 2, 3]
    assert set(Counter(gap.cause for gap in found[0][1])) == {"host", "queue"}
