"""Why a revision was rolled back is kept while going back fails, too."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    for name in ("rejected_code", "rejected_message", "rejected_source"):
        op.add_column("instances", sa.Column(name, _TEXT, nullable=True))
