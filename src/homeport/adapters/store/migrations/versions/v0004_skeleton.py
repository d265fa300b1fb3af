"""Several processes on one database: leases, and messages too long for a notification. Reports that central could not
process, stored as received. The health of installed instances. Indexes for lists."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from homeport.core.redaction import redact
from homeport.core.values.versions import version_order

revision = "0004"
down_revision = "0003"
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
    _addresses_without_passwords()
    _several_processes()
    _reports_aside()
    _health()
    _subjects()
    _protocols()
    _lists()


def _protocols() -> None:
    """The protocol version of each peer; unknown before."""
    for table in ("sites", "nodes"):
        op.add_column(table, sa.Column("protocol", _NUMBER, nullable=True))
        op.add_column(table, _text("features", nullable=True))
    op.add_column("nodes", _text("agent_address", nullable=True))


def _lists() -> None:
    """Pages and counts from an index; versions in an order that a database can sort by."""
    op.drop_index("ix_deployments_site_name", "deployments")
    op.drop_index("ix_deployments_state", "deployments")
    op.create_index("ix_deployments_site_name_id", "deployments", ["site", "name", "id"])
    op.create_index("ix_deployments_state_archived_at", "deployments", ["state", "archived_at"])
    op.add_column("apps", _text("version_order", nullable=True))
    connection = op.get_bind()
    for app_id, version in connection.execute(sa.text("SELECT id, version FROM apps")).fetchall():
        connection.execute(
            sa.text("UPDATE apps SET version_order = :sorted WHERE id = :id"),
            {"sorted": version_order(version), "id": app_id},
        )


def _subjects() -> None:
    """Events of apps and rollouts have their subject in their data, which is used when they are read."""
    for name in ("subject_kind", "subject_id", "stream"):
        op.add_column("events", _text(name, nullable=True))
    op.execute("UPDATE events SET stream = 'fleet'")
    op.execute("UPDATE events SET subject_kind = 'node', subject_id = node_id WHERE kind LIKE 'node.%'")
    op.execute(
        "UPDATE events SET subject_kind = 'deployment', subject_id = deployment_id WHERE deployment_id IS NOT NULL"
        " AND (kind LIKE 'deployment.%' OR kind LIKE 'instance.%' OR kind LIKE 'drift.%' OR kind LIKE 'hold.%')"
    )
    op.execute(
        "UPDATE events SET subject_kind = 'site', subject_id = site WHERE site IS NOT NULL AND subject_kind IS NULL"
    )
    op.create_index("ix_events_subject_kind_subject_id_id", "events", ["subject_kind", "subject_id", "id"])
    op.create_index("ix_events_stream_id", "events", ["stream", "id"])


def _several_processes() -> None:
    op.add_column("sites", _moment("silent_since", nullable=True))
    op.create_table(
        "leases",
        _text("name"),
        _text("holder"),
        sa.Column("token", _NUMBER, nullable=False),
        _moment("expires_at"),
        sa.PrimaryKeyConstraint("name", name="pk_leases"),
    )
    op.create_table(
        "bus_messages",
        _text("id"),
        _text("body"),
        _moment("at"),
        sa.PrimaryKeyConstraint("id", name="pk_bus_messages"),
    )


def _reports_aside() -> None:
    op.create_table(
        "reports_aside",
        _text("site"),
        _text("epoch"),
        sa.Column("sequence", _NUMBER, autoincrement=False, nullable=False),
        _text("kind"),
        _text("why"),
        _text("body"),
        _moment("at"),
        sa.PrimaryKeyConstraint("site", "epoch", "sequence", name="pk_reports_aside"),
    )


def _health() -> None:
    op.add_column("instances", _moment("unhealthy_since", nullable=True))
    op.add_column("instances", _text("unhealthy_why", nullable=True))
    op.add_column("nodes", _text("problem", nullable=True))
    op.add_column("deployments", _text("set_aside", nullable=True))
    op.add_column("nodes", _text("tunable", nullable=True))


def _addresses_without_passwords() -> None:
    """Apps stored the address of their repository as given, with the password or token in it."""
    connection = op.get_bind()
    for app_id, address in connection.execute(sa.text("SELECT id, repository FROM apps")).fetchall():
        if redact(address) != address:
            connection.execute(
                sa.text("UPDATE apps SET repository = :shown WHERE id = :id"),
                {"shown": redact(address), "id": app_id},
            )
