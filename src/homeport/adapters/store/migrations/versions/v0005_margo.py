"""What central keeps of Margo clients: manifests, artifacts, devices, status reports."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_MOMENT = sa.DateTime(timezone=True)


def _text(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, _TEXT, nullable=nullable)


def _number(name: str) -> sa.Column[Any]:
    return sa.Column(name, _NUMBER, nullable=False)


def _moment(name: str) -> sa.Column[Any]:
    return sa.Column(name, _MOMENT, nullable=False)


def upgrade() -> None:
    op.create_table(
        "margo_manifests",
        _text("site"),
        _number("manifest_version"),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        _text("recent"),
        _moment("rendered_at"),
        sa.PrimaryKeyConstraint("site", name="pk_margo_manifests"),
    )
    op.create_table(
        "margo_artifacts",
        _text("site"),
        _text("digest"),
        _text("deployment_id", nullable=True),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        _number("manifest_version"),
        sa.PrimaryKeyConstraint("site", "digest", name="pk_margo_artifacts"),
    )
    op.create_table(
        "margo_devices",
        _text("site"),
        _text("id"),
        _text("properties"),
        _text("labels"),
        _text("extensions"),
        _moment("reported_at"),
        sa.PrimaryKeyConstraint("site", "id", name="pk_margo_devices"),
    )
    op.create_table(
        "margo_statuses",
        _text("site"),
        _text("deployment_id"),
        _text("device_id"),
        _number("adopted_version"),
        _text("state"),
        _text("error", nullable=True),
        _text("components"),
        _moment("at"),
        sa.PrimaryKeyConstraint("site", "deployment_id", "device_id", name="pk_margo_statuses"),
    )
