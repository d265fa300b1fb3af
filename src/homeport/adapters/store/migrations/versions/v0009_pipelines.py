"""Pipelines that are kept by name, their runs, and what the steps of these have left."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_MOMENT = sa.DateTime(timezone=True)


def _text(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, _TEXT, nullable=nullable)


def upgrade() -> None:
    op.create_table(
        "pipelines",
        _text("name"),
        _text("site"),
        sa.Column("version", _NUMBER, nullable=False),
        sa.Column("updated_at", _MOMENT, nullable=False),
        sa.Column("next_at", _MOMENT, nullable=True),
        _text("record"),
        sa.PrimaryKeyConstraint("name", name="pk_pipelines"),
    )
    op.create_table(
        "pipeline_runs",
        _text("id"),
        _text("pipeline"),
        _text("site"),
        _text("state"),
        sa.Column("version", _NUMBER, nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("updated_at", _MOMENT, nullable=False),
        sa.Column("finished_at", _MOMENT, nullable=True),
        _text("cancelled_by", nullable=True),
        _text("record"),
        sa.PrimaryKeyConstraint("id", name="pk_pipeline_runs"),
    )
    op.create_index("ix_pipeline_runs_created_at_id", "pipeline_runs", ["created_at", "id"])
    op.create_index("ix_pipeline_runs_pipeline_created_at", "pipeline_runs", ["pipeline", "created_at"])
    op.create_index("ix_pipeline_runs_state_finished_at", "pipeline_runs", ["state", "finished_at"])
    op.create_table(
        "pipeline_results",
        _text("run_id"),
        _text("step"),
        sa.Column("item", _NUMBER, autoincrement=False, nullable=False),
        _text("output"),
        _text("log"),
        sa.PrimaryKeyConstraint("run_id", "step", "item", name="pk_pipeline_results"),
    )
