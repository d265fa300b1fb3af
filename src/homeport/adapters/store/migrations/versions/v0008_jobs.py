"""Jobs, what they have left, and a site's reports about them to central."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_MOMENT = sa.DateTime(timezone=True)


def _text(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, _TEXT, nullable=nullable)


def upgrade() -> None:
    op.create_table(
        "jobs",
        _text("site"),
        _text("id"),
        _text("state"),
        sa.Column("version", _NUMBER, nullable=False),
        _text("node_id", nullable=True),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("updated_at", _MOMENT, nullable=False),
        sa.Column("finished_at", _MOMENT, nullable=True),
        sa.Column("is_delivered", sa.Boolean(), nullable=False),
        sa.Column("is_cancelled", sa.Boolean(), nullable=False),
        _text("record"),
        sa.PrimaryKeyConstraint("site", "id", name="pk_jobs"),
    )
    op.create_index("ix_jobs_created_at_site_id", "jobs", ["created_at", "site", "id"])
    op.create_index("ix_jobs_site_state", "jobs", ["site", "state"])
    op.create_index("ix_jobs_state_finished_at", "jobs", ["state", "finished_at"])
    op.create_index("ix_jobs_id", "jobs", ["id"])
    op.create_table(
        "job_files",
        _text("site"),
        _text("job_id"),
        _text("path"),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("site", "job_id", "path", name="pk_job_files"),
    )
    op.create_table(
        "job_reports",
        sa.Column("position", _NUMBER, autoincrement=False, nullable=False),
        _text("body"),
        sa.PrimaryKeyConstraint("position", name="pk_job_reports"),
    )
