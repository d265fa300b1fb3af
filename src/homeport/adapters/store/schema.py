"""The tables, one schema for both databases. `migrations/` must lead to exactly this; a test compares them."""

from typing import Any, Final

from sqlalchemy import Column, ForeignKey, ForeignKeyConstraint, Index, MetaData, Table, UniqueConstraint

from homeport.adapters.store.columns import Bytes, Flag, MomentColumn, Number, Words

REVISION: Final = "0016"
"""The newest migration. Defined here so that an up-to-date database is recognised without loading Alembic."""

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


def _number(name: str, *, nullable: bool = False) -> Column[Any]:
    return Column(name, Number, nullable=nullable)


def _position(name: str) -> Column[int]:
    """A key that continues a row of `counters`: no gaps, in the order of commits."""
    return Column(name, Number, primary_key=True, autoincrement=False, nullable=False)


def _moment(name: str, *, nullable: bool = False) -> Column[Any]:
    return Column(name, MomentColumn, nullable=nullable)


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
    _optional("version_order"),
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
    _moment("silent_since", nullable=True),
    _number("protocol", nullable=True),
    _optional("features"),
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
    _optional("problem"),
    _optional("tunable"),
    _number("protocol", nullable=True),
    _optional("features"),
    _optional("agent_address"),
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
    Column("wanted", Flag, nullable=False),
    _text("state"),
    _number("version"),
    _moment("created_at"),
    _moment("updated_at"),
    _text("created_by"),
    _optional("problem"),
    _moment("archived_at", nullable=True),
    _optional("set_aside"),
    Index(None, "site", "name", "id"),
    Index(None, "name"),
    Index(None, "state", "archived_at"),
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
    _moment("unhealthy_since", nullable=True),
    _optional("unhealthy_why"),
    _optional("rejected_code"),
    _optional("rejected_message"),
    _optional("rejected_source"),
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
    _text("over", key=True),
    _text("reason"),
    _text("author"),
    _moment("at"),
)
"""At a site: the revision it stays at. At central: what is still to be written to Git, for each revision that it
replaces there, since only Git knows which of them is the newest."""

reports_aside = Table(
    "reports_aside",
    metadata,
    _text("site", key=True),
    _text("epoch", key=True),
    Column("sequence", Number, primary_key=True, autoincrement=False, nullable=False),
    _text("kind"),
    _text("why"),
    _text("body"),
    _moment("at"),
)
"""At central: reports of a site that could not be processed."""

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
"""An empty deployment_id means the whole site."""

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
# No foreign keys: a record outlives what it is about.

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
    _optional("subject_kind"),
    _optional("subject_id"),
    _optional("stream"),
    Index(None, "deployment_id", "id"),
    Index(None, "subject_kind", "subject_id", "id"),
    Index(None, "stream", "id"),
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
"""The sequencer: the last number assigned in each append-only table. It outlives the rows: the outbox is emptied, its
sequence continues."""

role_values = Table("role_values", metadata, _text("key", key=True), _text("value"))

instance_values = Table(
    "instance_values",
    metadata,
    _text("name", key=True),
    _text("deployment_id", key=True),
    _text("node_id", key=True),
    _text("value"),
)


# --- measurements -----------------------------------------------------------------------------------------

telemetry = Table(
    "telemetry",
    metadata,
    _text("site", key=True),
    _text("node_id", key=True),
    Column("resolution_seconds", Number, primary_key=True, autoincrement=False, nullable=False),
    Column("start", MomentColumn, primary_key=True, nullable=False),
    Column("content", Bytes, nullable=False),
    Index(None, "resolution_seconds", "start"),
)
"""Packed windows: a row for each node, resolution and stretch of time."""

heartbeats = Table(
    "heartbeats",
    metadata,
    _text("site", key=True),
    _text("node_id", key=True),
    Column("start", MomentColumn, primary_key=True, nullable=False),
    _text("state"),
    _moment("finish", nullable=True),
    Index(None, "finish"),
)
"""Intervals in which a node was live, stale or lost."""

# --- several processes on one database --------------------------------------------------------------------

leases = Table(
    "leases",
    metadata,
    _text("name", key=True),
    _text("holder"),
    _number("token"),
    _moment("expires_at"),
)
"""Leases: work that one process does at a time. The times are the database's own."""

bus_messages = Table("bus_messages", metadata, _text("id", key=True), _text("body"), _moment("at"))
"""Messages between processes that are too long for a notification; each is deleted after a minute."""


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


# --- Margo clients ----------------------------------------------------------------------------------------

margo_manifests = Table(
    "margo_manifests",
    metadata,
    _text("site", key=True),
    _number("manifest_version"),
    Column("body", Bytes, nullable=False),
    _text("recent"),
    _moment("rendered_at"),
)
"""The newest State Manifest of each client. A row outlives its client: versions are never reused."""

margo_artifacts = Table(
    "margo_artifacts",
    metadata,
    _text("site", key=True),
    _text("digest", key=True),
    _optional("deployment_id"),
    Column("content", Bytes, nullable=False),
    _number("manifest_version"),
)
"""YAML files and bundles, by digest. Scoped to a client: a digest of another one does not exist."""

margo_devices = Table(
    "margo_devices",
    metadata,
    _text("site", key=True),
    _text("id", key=True),
    _text("properties"),
    _text("labels"),
    _text("extensions"),
    _moment("reported_at"),
)

margo_statuses = Table(
    "margo_statuses",
    metadata,
    _text("site", key=True),
    _text("deployment_id", key=True),
    _text("device_id", key=True),
    _number("adopted_version"),
    _text("state"),
    _optional("error"),
    _text("components"),
    _moment("at"),
)
"""The last status report of each deployment on each device, with its components."""

# --- inference --------------------------------------------------------------------------------------------

tasks = Table(
    "tasks",
    metadata,
    _text("id", key=True),
    _text("caller"),
    _text("digest"),
    _text("state"),
    _text("body"),
    _text("answer"),
    _text("outcome"),
    _moment("at"),
    Index(None, "state", "at"),
)

artifacts = Table(
    "artifacts",
    metadata,
    _text("id", key=True),
    _text("kind"),
    _number("created_ms"),
    _text("tags"),
    _text("document"),
    _text("owner"),
    Index(None, "created_ms"),
)

artifact_owners = Table(
    "artifact_owners",
    metadata,
    _text("artifact_id", key=True),
    _text("owner", key=True),
)
"""Keys that posted a document which another key had posted before."""

usage = Table(
    "usage",
    metadata,
    _text("caller", key=True),
    _text("day", key=True),
    _text("model", key=True),
    _number("requests"),
    _number("tokens_in"),
    _number("tokens_out"),
)
"""Tokens and requests of each key, by day and model."""

site_usage = Table(
    "site_usage",
    metadata,
    _text("site", key=True),
    _text("caller", key=True),
    _text("day", key=True),
    _text("model", key=True),
    _number("requests"),
    _number("tokens_in"),
    _number("tokens_out"),
)
"""The same at central, of the task planes of sites: as each site said last."""

catalog_models = Table(
    "catalog_models",
    metadata,
    _text("id", key=True),
    _text("document"),
)
"""The catalog of models, which all centrals of the database share."""


# --- jobs -------------------------------------------------------------------------------------------------

jobs = Table(
    "jobs",
    metadata,
    _text("site", key=True),
    _text("id", key=True),
    _text("state"),
    _number("version"),
    _optional("node_id"),
    _moment("created_at"),
    _moment("updated_at"),
    _moment("finished_at", nullable=True),
    Column("is_delivered", Flag, nullable=False),
    Column("is_cancelled", Flag, nullable=False),
    _text("record"),
    Index(None, "created_at", "site", "id"),
    Index(None, "site", "state"),
    Index(None, "state", "finished_at"),
    Index(None, "id"),
)

job_files = Table(
    "job_files",
    metadata,
    _text("site", key=True),
    _text("job_id", key=True),
    _text("path", key=True),
    Column("content", Bytes, nullable=False),
)

job_reports = Table("job_reports", metadata, _position("position"), _text("body"))

# --- pipelines --------------------------------------------------------------------------------------------

pipelines = Table(
    "pipelines",
    metadata,
    _text("name", key=True),
    _text("site"),
    _number("version"),
    _moment("updated_at"),
    _moment("next_at", nullable=True),
    _text("record"),
)

pipeline_runs = Table(
    "pipeline_runs",
    metadata,
    _text("id", key=True),
    _text("pipeline"),
    _text("site"),
    _text("state"),
    _number("version"),
    _moment("created_at"),
    _moment("updated_at"),
    _moment("finished_at", nullable=True),
    _optional("cancelled_by"),
    _text("record"),
    _number("depth", nullable=True),
    Index(None, "created_at", "id"),
    Index(None, "pipeline", "created_at"),
    Index(None, "state", "finished_at"),
)

pipeline_results = Table(
    "pipeline_results",
    metadata,
    _text("run_id", key=True),
    _text("step", key=True),
    _position("item"),
    _text("output"),
    _text("log"),
)
