"""Artifacts that several keys posted: who has them besides the first."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "artifact_owners",
        sa.Column("artifact_id", _TEXT, nullable=False),
        sa.Column("owner", _TEXT, nullable=False),
        sa.PrimaryKeyConstraint("artifact_id", "owner", name="pk_artifact_owners"),
    )
