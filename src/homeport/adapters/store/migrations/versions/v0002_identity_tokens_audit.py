"""Tokens, identities, join tokens, the audit trail and secrets."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
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
    op.create_table(
        "tokens",
        _text("id"),
        _text("name"),
        _text("role"),
        _text("sites"),
        _text("hash"),
        _moment("created_at"),
        _text("created_by"),
        _moment("expires_at", nullable=True),
        _moment("revoked_at", nullable=True),
        _moment("last_used_at", nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
    )
    op.create_table(
        "identities",
        _text("spiffe_id"),
        _text("kind"),
        _text("name"),
        _text("site", nullable=True),
        _text("spki"),
        _text("standing"),
        sa.Column("csr", sa.LargeBinary(), nullable=True),
        _moment("not_after", nullable=True),
        _text("address"),
        _moment("requested_at"),
        _moment("decided_at", nullable=True),
        _text("decided_by"),
        sa.PrimaryKeyConstraint("spiffe_id", name="pk_identities"),
    )
    op.create_index("ix_identities_standing", "identities", ["standing"])
    op.create_table(
        "join_tokens",
        _text("id"),
        _text("kind"),
        _text("site"),
        _text("hash"),
        _moment("created_at"),
        _text("created_by"),
        _moment("expires_at"),
        _moment("used_at", nullable=True),
        _text("used_by"),
        sa.PrimaryKeyConstraint("id", name="pk_join_tokens"),
    )
    op.create_table(
        "audit",
        sa.Column("position", _NUMBER, nullable=False, autoincrement=False),
        _moment("at"),
        _text("actor"),
        _text("role"),
        _text("address"),
        _text("action"),
        _text("target"),
        _text("result"),
        _text("detail"),
        _text("previous"),
        _text("hash"),
        sa.PrimaryKeyConstraint("position", name="pk_audit"),
    )
    op.create_table(
        "secrets",
        _text("site"),
        _text("name"),
        sa.Column("ciphertext", sa.LargeBinary(), nullable=False),
        sa.Column("version", _NUMBER, nullable=False),
        _moment("updated_at"),
        _text("updated_by"),
        sa.PrimaryKeyConstraint("site", "name", name="pk_secrets"),
    )
