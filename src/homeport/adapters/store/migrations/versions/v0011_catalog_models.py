"""The catalog of models, which was a file of each central."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "catalog_models",
        sa.Column("id", _TEXT, nullable=False),
        sa.Column("document", _TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_catalog_models"),
    )
