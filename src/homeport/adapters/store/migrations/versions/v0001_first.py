"""The first schema."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Written out here, and not taken from the current schema: a migration must never change its meaning.
_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_MOMENT = sa.DateTime(timezone=True)


def _text(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, _TEXT, nullable=nullable)


def _number(name: str, *, autoincrement: bool = True) -> sa.Column[Any]:
    return sa.Column(name, _NUMBER, nullable=False, autoincrement=autoincrement)


def _moment(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, _MOMENT, nullable=nullable)


def upgrade() -> None:
    _create_catalog()
    _create_machines()
    _create_deployments()
    _create_record()
    _create_role()


def _create_catalog() -> None:
    op.create_table(
        "apps",
        _text("id"),
        _text("category"),
        _text("app_name"),
        _text("version"),
        _text("margo_id"),
        _text("name"),
        _text("vendor"),
        _text("description"),
        _text("tags"),
        _text("descriptor"),
        sa.Column("source", sa.LargeBinary(), nullable=False),
        _text("repository"),
        _text("commit", nullable=True),
        _moment("added_at"),
        _text("added_by"),
        sa.PrimaryKeyConstraint("id", name="pk_apps"),
        sa.UniqueConstraint("category", "app_name", "version", name="uq_apps_category_app_name_version"),
    )
    op.create_index("ix_apps_app_name", "apps", ["app_name"])
    op.create_table(
        "profiles",
        _text("app_id"),
        _text("profile_id"),
        _number("position"),
        _text("type"),
        _text("description"),
        _text("device_constraints", nullable=True),
        sa.ForeignKeyConstraint(["app_id"], ["apps.id"], name="fk_profiles_apps", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("app_id", "profile_id", name="pk_profiles"),
    )
    op.create_table(
        "components",
        _text("app_id"),
        _text("profile_id"),
        _text("name"),
        _number("position"),
        _text("properties"),
        sa.ForeignKeyConstraint(
            ["app_id", "profile_id"],
            ["profiles.app_id", "profiles.profile_id"],
            name="fk_components_profiles",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("app_id", "profile_id", "name", name="pk_components"),
    )


def _create_machines() -> None:
    op.create_table(
        "sites",
        _text("name"),
        _moment("joined_at"),
        _moment("last_seen", nullable=True),
        _text("applied_commit", nullable=True),
        _text("problem", nullable=True),
        _text("software_version"),
        sa.PrimaryKeyConstraint("name", name="pk_sites"),
    )
    op.create_table(
        "nodes",
        _text("site"),
        _text("id"),
        _text("hostname"),
        _text("capabilities"),
        _text("labels"),
        _text("software_version"),
        _text("liveness"),
        _moment("last_seen"),
        _moment("registered_at"),
        sa.PrimaryKeyConstraint("site", "id", name="pk_nodes"),
    )
    op.create_index("ix_nodes_id", "nodes", ["id"])


def _create_deployments() -> None:
    op.create_table(
        "deployments",
        _text("id"),
        _text("site"),
        _text("name"),
        _text("margo_app_id"),
        _text("app_name"),
        _text("app_category"),
        _text("app_version"),
        _text("profile_id"),
        _text("profile_type"),
        _text("parameters"),
        _text("revision"),
        _text("commit"),
        _text("rollout_id", nullable=True),
        sa.Column("wanted", sa.Boolean(), nullable=False),
        _text("state"),
        _number("version"),
        _moment("created_at"),
        _moment("updated_at"),
        _text("created_by"),
        _text("problem", nullable=True),
        _moment("archived_at", nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_deployments"),
    )
    op.create_index("ix_deployments_name", "deployments", ["name"])
    op.create_index("ix_deployments_rollout_id", "deployments", ["rollout_id"])
    op.create_index("ix_deployments_site_name", "deployments", ["site", "name"])
    op.create_index("ix_deployments_state", "deployments", ["state"])
    op.create_table(
        "instances",
        _text("deployment_id"),
        _text("node_id"),
        _number("incarnation"),
        _text("state"),
        _number("version"),
        _number("generation"),
        _text("revision", nullable=True),
        _text("running_revision", nullable=True),
        _number("attempt"),
        _text("step"),
        _text("failure_code", nullable=True),
        _text("failure_message", nullable=True),
        _text("failure_source", nullable=True),
        _moment("updated_at"),
        sa.PrimaryKeyConstraint("deployment_id", "node_id", name="pk_instances"),
    )


def _create_record() -> None:
    op.create_table(
        "history",
        _number("id", autoincrement=False),
        _text("deployment_id"),
        _text("node_id"),
        _number("incarnation"),
        _text("before"),
        _text("after"),
        _text("happening"),
        _text("actor"),
        _text("reason"),
        _moment("at"),
        _text("revision", nullable=True),
        _text("failure_code", nullable=True),
        _text("failure_message", nullable=True),
        _text("failure_source", nullable=True),
        _text("verdict"),
        sa.PrimaryKeyConstraint("id", name="pk_history"),
    )
    op.create_index("ix_history_deployment_id_id", "history", ["deployment_id", "id"])
    op.create_table(
        "events",
        _number("id", autoincrement=False),
        _text("kind"),
        _moment("at"),
        _text("message"),
        _text("site", nullable=True),
        _text("deployment_id", nullable=True),
        _text("node_id", nullable=True),
        _text("data"),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
    )
    op.create_index("ix_events_deployment_id_id", "events", ["deployment_id", "id"])


def _create_role() -> None:
    op.create_table(
        "desired_files",
        _text("deployment_id"),
        _text("path"),
        _text("revision"),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("deployment_id", name="pk_desired_files"),
    )
    op.create_table(
        "outbox",
        _number("sequence", autoincrement=False),
        _text("body"),
        sa.PrimaryKeyConstraint("sequence", name="pk_outbox"),
    )
    op.create_table(
        "counters",
        _text("name"),
        _number("value"),
        sa.PrimaryKeyConstraint("name", name="pk_counters"),
    )
    op.create_table(
        "role_values",
        _text("key"),
        _text("value"),
        sa.PrimaryKeyConstraint("key", name="pk_role_values"),
    )
