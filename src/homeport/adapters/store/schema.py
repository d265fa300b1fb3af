"""The tables, one schema for both databases. `migrations/` must lead to exactly this; a test compares them."""

from typing import Any, Final

from sqlalchemy import Boolean, Column, ForeignKey, ForeignKeyConstraint, Index, MetaData, Table, UniqueConstraint

from homeport.adapters.store.columns import Bytes, Moment, Number, Words

REVISION: Final = "0003"
"""The newest migration. Kept here so that an up-to-date database is recognised without loading Alembic."""

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _text(name: str, *constraints: Any, key: bool = False) -> Column[str]:
    return Column(name, Words, *constraints, primary_key=key, nullable=False)


def _optional(name: str) -> Column[str | None]:
    return Column(name, Words, nullable=True)


def _number(name: str) -> Column[int]:
    return Column(name, Number, nullable=False)


def _position(name: str) -> Column[int]:
    """A key that we count ourselves: one writer, no gaps, in the order of commits."""
    return Column(name, Number, primary_key=True, autoincrement=False, nullable=False)


def _moment(name: str, *, nullable: bool = False) -> Column[Any]:
    return Column(name, Moment, nullable=nullable)


# --- catalog ----------------------------------------------------------------------------------------------

apps = Table(
    "apps",
    metadata,
    _text("id", key=True),
    _text("category"),
    _text("app_name"),
    _text("version"),
    _text("margo_id"),
    _text("name"),
    _text("vendor"),
    _text("description"),
    _text("tags"),
    _text("descriptor"),
    Column("source", Bytes, nullable=False),
    _text("repository"),
    _optional("commit"),
    _moment("added_at"),
    _text("added_by"),
    UniqueConstraint("category", "app_name", "version"),
    Index(None, "app_name"),
)

profiles = Table(
    "profiles",
    metadata,
    _text("app_id", ForeignKey("apps.id", ondelete="CASCADE"), key=True),
    _text("profile_id", key=True),
    _number("position"),
    _text("type"),
    _text("description"),
    _optional("device_constraints"),
)

components = Table(
    "components",
    metadata,
    _text("app_id", key=True),
    _text("profile_id", key=True),
    _text("name", key=True),
    _number("position"),
    _text("properties"),
    ForeignKeyConstraint(["app_id", "profile_id"], ["profiles.app_id", "profiles.profile_id"], ondelete="CASCADE"),
)

# --- fleet ------------------------------------------------------------------------------------------------

sites = Table(
    "sites",
    metadata,
    _text("name", key=True),
    _moment("joined_at"),
    _moment("last_seen", nullable=True),
    _optional("applied_commit"),
    _optional("problem"),
    _text("software_version"),
    _optional("labels"),
)

nodes = Table(
    "nodes",
    metadata,
    _text("site", key=True),
    _text("id", key=True),
    _text("hostname"),
    _text("capabilities"),
    _text("labels"),
    _text("software_version"),
    _text("liveness"),
    _moment("last_seen"),
    _moment("registered_at"),
    _optional("drain"),
    Index(None, "id"),
)

deployments = Table(
    "deployments",
    metadata,
    _text("id", key=True),
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
    _optional("rollout_id"),
    Column("wanted", Boolean, nullable=False),
    _text("state"),
    _number("version"),
    _moment("created_at"),
    _moment("updated_at"),
    _text("created_by"),
    _optional("problem"),
    _moment("archived_at", nullable=True),
    Index(None, "site", "name"),
    Index(None, "name"),
    Index(None, "state"),
    Index(None, "rollout_id"),
)

instances = Table(
    "instances",
    metadata,
    _text("deployment_id", key=True),
    _text("node_id", key=True),
    _number("incarnation"),
    _text("state"),
    _number("version"),
    _number("generation"),
    _optional("revision"),
    _optional("running_revision"),
    _number("attempt"),
    _text("step"),
    _optional("failure_code"),
    _optional("failure_message"),
    _optional("failure_source"),
    _moment("updated_at"),
    _optional("rejected_revision"),
    _moment("next_at", nullable=True),
)

revisions = Table(
    "revisions",
    metadata,
    _text("deployment_id", key=True),
    _text("revision", key=True),
    _text("app_version"),
    Column("content", Bytes, nullable=False),
    _text("commit"),
    _text("author"),
    _moment("at"),
)

pins = Table(
    "pins",
    metadata,
    _text("deployment_id", key=True),
    _text("revision"),
    Column("content", Bytes, nullable=False),
    _text("over"),
    _text("reason"),
    _text("author"),
    _moment("at"),
)
"""At a site: what it stays at. At central: what is still to be written to Git."""

holds = Table(
    "holds",
    metadata,
    _text("site", key=True),
    _text("deployment_id", key=True),
    _text("reason"),
    _text("author"),
    _moment("at"),
    _moment("expires_at"),
)
"""An empty deployment_id stands for the whole site."""

rollouts = Table(
    "rollouts",
    metadata,
    _text("id", key=True),
    _text("name"),
    _text("state"),
    _text("intent"),
    _text("progress"),
    _number("version"),
    _moment("created_at"),
    _moment("updated_at"),
    _text("created_by"),
    Index(None, "name"),
    Index(None, "state"),
)

# --- what happened ----------------------------------------------------------------------------------------
# Neither refers to other tables: a record outlives what it speaks of.

history = Table(
    "history",
    metadata,
    _position("id"),
    _text("deployment_id"),
    _text("node_id"),
    _number("incarnation"),
    _text("before"),
    _text("after"),
    _text("happening"),
    _text("actor"),
    _text("reason"),
    _moment("at"),
    _optional("revision"),
    _optional("failure_code"),
    _optional("failure_message"),
    _optional("failure_source"),
    _text("verdict"),
    Index(None, "deployment_id", "id"),
)

events = Table(
    "events",
    metadata,
    _position("id"),
    _text("kind"),
    _moment("at"),
    _text("message"),
    _optional("site"),
    _optional("deployment_id"),
    _optional("node_id"),
    _text("data"),
    Index(None, "deployment_id", "id"),
)

# --- a site's own -----------------------------------------------------------------------------------------

desired_files = Table(
    "desired_files",
    metadata,
    _text("deployment_id", key=True),
    _text("path"),
    _text("revision"),
    Column("content", Bytes, nullable=False),
)

outbox = Table("outbox", metadata, _position("sequence"), _text("body"))

counters = Table("counters", metadata, _text("name", key=True), _number("value"))
"""Numbers that must outlive the rows they were given to: the outbox is emptied, its sequence goes on."""

role_values = Table("role_values", metadata, _text("key", key=True), _text("value"))


# --- who is who -------------------------------------------------------------------------------------------

tokens = Table(
    "tokens",
    metadata,
    _text("id", key=True),
    _text("name"),
    _text("role"),
    _text("sites"),
    _text("hash"),
    _moment("created_at"),
    _text("created_by"),
    _moment("expires_at", nullable=True),
    _moment("revoked_at", nullable=True),
    _moment("last_used_at", nullable=True),
)

identities = Table(
    "identities",
    metadata,
    _text("spiffe_id", key=True),
    _text("kind"),
    _text("name"),
    _optional("site"),
    _text("spki"),
    _text("standing"),
    Column("csr", Bytes, nullable=True),
    _moment("not_after", nullable=True),
    _text("address"),
    _moment("requested_at"),
    _moment("decided_at", nullable=True),
    _text("decided_by"),
    Index(None, "standing"),
)

join_tokens = Table(
    "join_tokens",
    metadata,
    _text("id", key=True),
    _text("kind"),
    _text("site"),
    _text("hash"),
    _moment("created_at"),
    _text("created_by"),
    _moment("expires_at"),
    _moment("used_at", nullable=True),
    _text("used_by"),
)

audit = Table(
    "audit",
    metadata,
    _position("position"),
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
)

secrets = Table(
    "secrets",
    metadata,
    _text("site", key=True),
    _text("name", key=True),
    Column("ciphertext", Bytes, nullable=False),
    _number("version"),
    _moment("updated_at"),
    _text("updated_by"),
)
