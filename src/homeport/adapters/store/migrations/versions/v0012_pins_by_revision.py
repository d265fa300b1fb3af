"""A deployment may have a pin for each revision that it replaces in Git."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _text(name: str) -> sa.Column[Any]:
    return sa.Column(name, _TEXT, nullable=False)


def upgrade() -> None:
    # SQLite cannot change a primary key, so both databases get the table anew; it has a row for each rollback that
    # waits for Git.
    names = ("deployment_id", "revision", "content", "over", "reason", "author")
    before = sa.table("pins", *(sa.column(name) for name in names), sa.column("at", sa.DateTime(timezone=True)))
    waiting = [dict(row._mapping) for row in op.get_bind().execute(sa.select(before))]
    op.drop_table("pins")
    pins = op.create_table(
        "pins",
        _text("deployment_id"),
        _text("revision"),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        _text("over"),
        _text("reason"),
        _text("author"),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("deployment_id", "over", name="pk_pins"),
    )
    op.bulk_insert(pins, waiting)
