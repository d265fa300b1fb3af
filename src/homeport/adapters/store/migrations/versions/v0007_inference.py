"""Inference: tasks until they have ended, artifacts, usage by key."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_MOMENT = sa.DateTime(timezone=True)


def _text(name: str) -> sa.Column[Any]:
    return sa.Column(name, _TEXT, nullable=False)


def _number(name: str) -> sa.Column[Any]:
    return sa.Column(name, _NUMBER, nullable=False)


def upgrade() -> None:
    op.create_table(
        "tasks",
        *(_text(name) for name in ("id", "caller", "digest", "state", "body", "answer", "outcome")),
        sa.Column("at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tasks"),
    )
    op.create_index("ix_tasks_state_at", "tasks", ["state", "at"])
    op.create_table(
        "artifacts",
        _text("id"),
        _text("kind"),
        _number("created_ms"),
        _text("tags"),
        _text("document"),
        _text("owner"),
        sa.PrimaryKeyConstraint("id", name="pk_artifacts"),
    )
    op.create_index("ix_artifacts_created_ms", "artifacts", ["created_ms"])
    op.create_table(
        "usage",
        *(_text(name) for name in ("caller", "day", "model")),
        *(_number(name) for name in ("requests", "tokens_in", "tokens_out")),
        sa.PrimaryKeyConstraint("caller", "day", "model", name="pk_usage"),
    )
