"""Step 9: graph mode."""

from __future__ import annotations

from perfgate.catalogue.card import Metric, StepCard, Text

CARD = StepCard(
    number=9,
    slug="graph",
    title=Text("Graph mode", "图模式"),
    question=Text(""),
    how=Text(""),
    remedy=Text(""),
    metrics=(
        Metric(
            name="counters.graph_breaks",
            title=Text("graph breaks"),
            unit="1",
            better="lower",
            kind="exact",
            step=9,
            explanation=Text(
                "Places where torch.compile gives up a graph and goes back to Python, when everything is compiled"
                " anew for the shapes of the workload. Only where the workload compiles something."
            ),
            source="torch._dynamo's record of graph breaks, each place and reason once",
        ),
        Metric(
            name="counters.recompiles",
            title=Text("recompiles"),
            unit="1",
            better="lower",
            kind="exact",
            step=9,
            explanation=Text(
                "Compilations that steady calls still set off after every shape was called often enough to be "
                "compiled. Each stops a call for as long as a compiler runs. Only where the workload compiles "
                "something."
            ),
            source="torch._dynamo's count of compiled frames over steady calls, without a dispatch mode",
        ),
    ),
)
