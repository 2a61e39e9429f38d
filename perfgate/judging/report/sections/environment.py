"""How it was decided, what was thrown away, and the documents behind it, folded."""

from __future__ import annotations

from collections.abc import Mapping

from perfgate.judging.report import format as formats
from perfgate.judging.report.headline import first_line, metric_name
from perfgate.judging.report.messages import word
from perfgate.judging.report.summary import Summary, place

_SHOWN = 20


class Environment:
    """Procedure, noise floors, testbed differences, failed pairs and document hashes."""

    order = 130
    drop = 90
    title = "environment and samples"
    template = "environment.md.j2"
    numbered = False

    def fill(self, summary: Summary) -> Mapping[str, object] | None:
        """Everything it takes to make the decision again; None where nothing was there to decide."""
        if not summary.is_measured:
            return None
        decision = summary.decision
        return {
            "device": decision.device,
            "recorded": decision.recorded,
            "rules": decision.comparing == "rules",
            "version": decision.perfgate_version,
            "procedure": decision.procedure,
            "procedure_version": decision.procedure.version,
            "seed": str(decision.procedure.seed),
            "alpha": formats.setting(decision.policy.alpha),
            "margin": formats.setting(decision.excluded),
            "differences": decision.testbed_differences[:_SHOWN],
            "packages": decision.package_differences[:_SHOWN],
            "more_packages": max(0, len(decision.package_differences) - _SHOWN),
            "floors": [
                {
                    "metric": metric_name(f.metric, f.clock),
                    "place": place(f.workload, f.shape),
                    "floor": formats.plus_minus(f.floor),
                }
                for f in decision.noise_floors[:_SHOWN]
            ],
            "sides": {"base": decision.base.sha256, "head": decision.head.sha256},
            "looks": ", ".join(str(pairs) for pairs in decision.policy.looks),
            "rounds": decision.rounds,
            "unmoved": [place(workload, "") for workload in decision.unmoved[:_SHOWN]],
            "waited": None if decision.waited is None else formats.percent(decision.waited),
            "failed": [
                {"what": f.what, "workload": f.workload, "message": first_line(word(f.error.message))}
                for f in summary.failed_pairs[:_SHOWN]
            ],
            "failed_count": len(summary.failed_pairs),
        }


SECTION = Environment()
