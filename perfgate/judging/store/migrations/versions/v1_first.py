"""Version 1: runs with values and conditions, acceptances, triage, confirmed change points, verdicts, tokens, the audit log.

A released script stays as it is. It names its own types: those of the tables may change later.
"""

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _run_key() -> sa.Column[int]:
    key = sa.ForeignKey("runs.number", ondelete="CASCADE")
    return sa.Column("run", sa.Integer, key, primary_key=True, autoincrement=False)


def upgrade() -> None:
    op.create_table(
        "runs",
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("id", TEXT, nullable=False, unique=True),
        sa.Column("project", TEXT, nullable=False),
        sa.Column("session", TEXT, nullable=False),
        sa.Column("started", sa.Float, nullable=False),
        sa.Column("started_at", TEXT, nullable=False),
        sa.Column("recorded_at", TEXT, nullable=False),
        sa.Column("fingerprint", TEXT, nullable=False),
        sa.Column("device_kind", TEXT, nullable=False),
        sa.Column("commit_id", TEXT),
        sa.Column("branch", TEXT),
        sa.Column("subject", TEXT),
        sa.Column("dirty", sa.Boolean, nullable=False),
        sa.Column("workloads", TEXT, nullable=False),
        sa.UniqueConstraint("project", "session"),
        sqlite_autoincrement=True,
    )
    op.create_index("runs_by_start", "runs", ["project", "started"])
    op.create_index("runs_by_testbed", "runs", ["project", "fingerprint", "started"])
    op.create_table("run_documents", _run_key(), sa.Column("document", sa.LargeBinary, nullable=False))
    op.create_table(
        "series",
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("project", TEXT, nullable=False),
        sa.Column("fingerprint", TEXT, nullable=False),
        sa.Column("workload", TEXT, nullable=False),
        sa.Column("shape", TEXT, nullable=False),
        sa.Column("metric", TEXT, nullable=False),
        sa.Column("labels", TEXT, nullable=False),
        sa.Column("device_kind", TEXT, nullable=False),
        sa.UniqueConstraint("project", "fingerprint", "workload", "shape", "metric", "labels"),
    )
    op.create_table(
        "run_values",
        sa.Column("series", sa.Integer, sa.ForeignKey("series.number"), primary_key=True, autoincrement=False),
        sa.Column("started", sa.Float, primary_key=True),
        _run_key(),
        sa.Column("value", sa.Float, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("run_values_by_run", "run_values", ["run"])
    op.create_table("run_conditions", _run_key(), sa.Column("conditions", TEXT, nullable=False))
    op.create_table(
        "acceptances",
        sa.Column("project", TEXT, primary_key=True),
        sa.Column("commit", TEXT, primary_key=True),
        sa.Column("metric", TEXT, primary_key=True),
        sa.Column("reason", TEXT, nullable=False),
        sa.Column("accepted_by", TEXT, nullable=False),
        sa.Column("accepted_at", TEXT, nullable=False),
        sa.Column("until", TEXT),
    )
    op.create_table(
        "triages",
        sa.Column("project", TEXT, primary_key=True),
        sa.Column("commit", TEXT, primary_key=True),
        sa.Column("state", TEXT, nullable=False),
        sa.Column("reason", TEXT, nullable=False),
        sa.Column("author", TEXT, nullable=False),
        sa.Column("changed_at", TEXT, nullable=False),
    )
    op.create_table(
        "confirmations",
        sa.Column("project", TEXT, primary_key=True),
        sa.Column("before", TEXT, primary_key=True),
        sa.Column("after", TEXT, primary_key=True),
        sa.Column("workload", TEXT, primary_key=True),
        sa.Column("shape", TEXT, primary_key=True),
        sa.Column("metric", TEXT, primary_key=True),
        sa.Column("fingerprint", TEXT, primary_key=True),
        sa.Column("outcome", TEXT, nullable=False),
        sa.Column("low", sa.Float),
        sa.Column("high", sa.Float),
        sa.Column("confirmed_at", TEXT, nullable=False),
    )
    op.create_table(
        "tokens",
        sa.Column("id", TEXT, primary_key=True),
        sa.Column("sha256", TEXT, nullable=False, unique=True),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("project", TEXT),
        sa.Column("scope", TEXT, nullable=False),
        sa.Column("created_at", TEXT, nullable=False),
        sa.Column("revoked_at", TEXT),
    )
    op.create_table(
        "audit",
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("at", TEXT, nullable=False),
        sa.Column("actor", TEXT, nullable=False),
        sa.Column("action", TEXT, nullable=False),
        sa.Column("project", TEXT, nullable=False),
        sa.Column("subject", TEXT, nullable=False),
    )
    op.create_index("audit_by_project", "audit", ["project", "number"])
    op.create_table(
        "gates",
        sa.Column("project", TEXT, primary_key=True),
        sa.Column("gate", TEXT, primary_key=True),
        sa.Column("commit", TEXT, primary_key=True),
        sa.Column("testbed", TEXT, primary_key=True),
        sa.Column("change", sa.BigInteger, nullable=False),
        sa.Column("verdict", TEXT, nullable=False),
        sa.Column("judged_at", TEXT, nullable=False),
        sa.Column("link", TEXT, nullable=False),
    )
