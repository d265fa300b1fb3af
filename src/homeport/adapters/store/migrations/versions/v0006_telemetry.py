"""Measurements of nodes as packed windows, and the intervals of their heartbeats."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_MOMENT = sa.DateTime(timezone=True)


def _text(name: str) -> sa.Column[Any]:
    return sa.Column(name, _TEXT, nullable=False)


def upgrade() -> None:
    op.create_table(
        "telemetry",
        _text("site"),
        _text("node_id"),
        sa.Column("resolution_seconds", _NUMBER, autoincrement=False, nullable=False),
        sa.Column("start", _MOMENT, nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("site", "node_id", "resolution_seconds", "start", name="pk_telemetry"),
    )
    op.create_index("ix_telemetry_resolution_seconds_start", "telemetry", ["resolution_seconds", "start"])
    op.create_table(
        "heartbeats",
        _text("site"),
        _text("node_id"),
        sa.Column("start", _MOMENT, nullable=False),
        _text("state"),
        sa.Column("finish", _MOMENT, nullable=True),
        sa.PrimaryKeyConstraint("site", "node_id", "start", name="pk_heartbeats"),
    )
    op.create_index("ix_heartbeats_finish", "heartbeats", ["finish"])
