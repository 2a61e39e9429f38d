"""Find the advice on a rule by its name."""

from __future__ import annotations

from perfgate.catalogue.advice.advice import Advice
from perfgate.catalogue.advice.changes import CHANGES
from perfgate.catalogue.advice.findings import FINDINGS

ON_FINDINGS: dict[str, Advice] = {advice.rule: advice for advice in FINDINGS}
ON_CHANGES: dict[str, Advice] = {advice.rule: advice for advice in CHANGES}
ADVICE: dict[str, Advice] = {**ON_FINDINGS, **ON_CHANGES}
