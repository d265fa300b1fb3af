"""What the task planes of sites have used, as each site says it."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "site_usage",
        sa.Column("site", _TEXT, nullable=False),
        sa.Column("caller", _TEXT, nullable=False),
        sa.Column("day", _TEXT, nullable=False),
        sa.Column("model", _TEXT, nullable=False),
        sa.Column("requests", _NUMBER, nullable=False),
        sa.Column("tokens_in", _NUMBER, nullable=False),
        sa.Column("tokens_out", _NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("site", "caller", "day", "model", name="pk_site_usage"),
    )
