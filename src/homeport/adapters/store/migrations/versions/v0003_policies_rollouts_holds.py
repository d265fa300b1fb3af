"""Stored revisions, pins, holds, rollouts, labels of sites, drained nodes, and rolled back revisions."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_MOMENT = sa.DateTime(timezone=True)


def _text(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, _TEXT, nullable=nullable)


def _moment(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, _MOMENT, nullable=nullable)


def upgrade() -> None:
    op.add_column("sites", _text("labels", nullable=True))
    op.add_column("nodes", _text("drain", nullable=True))
    op.add_column("instances", _text("rejected_revision", nullable=True))
    op.add_column("instances", _moment("next_at", nullable=True))
    op.create_table(
        "revisions",
        _text("deployment_id"),
        _text("revision"),
        _text("app_version"),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        _text("commit"),
        _text("author"),
        _moment("at"),
        sa.PrimaryKeyConstraint("deployment_id", "revision", name="pk_revisions"),
    )
    op.create_table(
        "pins",
        _text("deployment_id"),
        _text("revision"),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        _text("over"),
        _text("reason"),
        _text("author"),
        _moment("at"),
        sa.PrimaryKeyConstraint("deployment_id", name="pk_pins"),
    )
    op.create_table(
        "holds",
        _text("site"),
        _text("deployment_id"),
        _text("reason"),
        _text("author"),
        _moment("at"),
        _moment("expires_at"),
        sa.PrimaryKeyConstraint("site", "deployment_id", name="pk_holds"),
    )
    op.create_table(
        "rollouts",
        _text("id"),
        _text("name"),
        _text("state"),
        _text("intent"),
        _text("progress"),
        sa.Column("version", _NUMBER, nullable=False),
        _moment("created_at"),
        _moment("updated_at"),
        _text("created_by"),
        sa.PrimaryKeyConstraint("id", name="pk_rollouts"),
    )
    op.create_index("ix_rollouts_name", "rollouts", ["name"])
    op.create_index("ix_rollouts_state", "rollouts", ["state"])
