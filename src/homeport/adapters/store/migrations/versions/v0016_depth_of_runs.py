"""How deep a run of a pipeline was called by others: each depth has room of its own."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("pipeline_runs", sa.Column("depth", _NUMBER, nullable=True))
