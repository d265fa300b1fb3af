"""The terms of Homeport. A term means one thing in code, API, CLI, events and docs, and it is defined here.

This module imports nothing of ours, so that every layer can use the same terms.
"""

from enum import StrEnum
from typing import Final, NewType

AppId = NewType("AppId", str)
"""UUID of one app version in central's catalog."""
DeploymentId = NewType("DeploymentId", str)
"""UUID; equals the name of the deployment's file in Git."""
RolloutId = NewType("RolloutId", str)
JobId = NewType("JobId", str)
"""Given by the caller that submits the job, or made by the role that takes it; unique within a site."""
RunId = NewType("RunId", str)
"""UUID of one run of a pipeline."""
SiteName = NewType("SiteName", str)
"""A site's name never changes: it is its folder in Git and its Margo deviceId."""
NodeId = NewType("NodeId", str)
Commit = NewType("Commit", str)
"""Forty hex digits."""
Digest = NewType("Digest", str)
"""`sha256:` and 64 lowercase hex digits."""
Generation = NewType("Generation", int)
"""Number of an order. It only grows at a site; a node refuses an older one than it has seen."""
Incarnation = NewType("Incarnation", int)
"""Which life of an instance. A file that returns after DELETED begins a new one."""

UNPLACED: Final = NodeId("")
"""No node: the id in an instance that its site could not place."""

SITE_NAME_PATTERN: Final = r"^[a-z0-9][a-z0-9-]{0,62}$"
DEPLOYMENT_NAME_PATTERN: Final = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
NODE_ID_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
ID_PREFIX_LENGTH_MIN: Final = 4
"""A shorter prefix of an id is more likely a mistyped name."""


class State(StrEnum):
    """The state of one instance of a deployment; `core.lifecycle.deployment` has the table."""

    PENDING = "PENDING"
    INSTALLING = "INSTALLING"
    INSTALLED = "INSTALLED"
    UPDATING = "UPDATING"
    FAILED = "FAILED"
    ROLLINGBACK = "ROLLINGBACK"
    DELETING = "DELETING"
    DELETED = "DELETED"


class Trigger(StrEnum):
    """What moves an instance from one state to another."""

    SCHEDULED = "scheduled"
    UNPLACEABLE = "unplaceable"
    HEALTHY = "healthy"
    GAVE_UP = "gave-up"
    CHANGED = "changed"
    RETRIED_INSTALL = "retried-install"
    RETRIED_UPDATE = "retried-update"
    ROLLED_BACK = "rolled-back"
    SUPERSEDED_INSTALL = "superseded-install"
    SUPERSEDED_UPDATE = "superseded-update"
    UNWANTED = "unwanted"
    REMOVED = "removed"
    RESTATED = "restated"
    """Not a step: the state of an instance after a resync of its site. Only in central's history."""


class Actor(StrEnum):
    """Who may cause an event of a state machine."""

    SITE = "site"
    NODE = "node"
    CENTRAL = "central"
    PERSON = "person"
    """An operator, through the API or by a push."""


class Liveness(StrEnum):
    """How long a node has sent no heartbeat, in words."""

    LIVE = "live"
    STALE = "stale"
    LOST = "lost"
    UNKNOWN = "unknown"
    """Its site is unreachable, so its liveness is unknown; never reported by a site itself."""


class ProfileType(StrEnum):
    """How the components of a profile are packaged (Margo's names)."""

    COMPOSE = "compose"
    HELM = "helm"
    CUSTOM = "custom"


class PlacementMode(StrEnum):
    """How many of the eligible nodes get an instance."""

    EACH = "each"
    ONE = "one"
    COUNT = "count"


class RolloutState(StrEnum):
    """The state of a rollout; `core.lifecycle.rollout` has the table."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    """Too many of its sites failed. An operator resumes or aborts it."""
    DONE = "done"
    ABORTED = "aborted"
    SUPERSEDED = "superseded"


class RolloutTrigger(StrEnum):
    """What moves a rollout from one state to another."""

    PAUSED = "paused"
    RESUMED = "resumed"
    ABORTED = "aborted"
    BROKE = "broke"
    """More sites failed than its threshold allows."""
    REACHED_ALL = "reached-all"
    SUPERSEDED = "superseded"


class RolloutCommand(StrEnum):
    """The operator's command to a rollout, as in its file in Git."""

    RUNNING = "running"
    PAUSED = "paused"
    ABORTED = "aborted"


class RolloutSiteStatus(StrEnum):
    """The state of a rollout at one of its sites."""

    WAITING = "waiting"
    """Its wave has not begun."""
    PENDING = "pending"
    INSTALLED = "installed"
    FAILED = "failed"
    """Failed permanently, or rolled back."""
    OFFLINE = "offline"
    """Has not connected for a while; its file waits in Git."""
    HELD = "held"
    """On hold by an operator; its file waits in Git until the hold ends."""
    LEFT = "left"
    """Deleted there, or superseded by a newer deployment: no longer part of this rollout."""


class JobState(StrEnum):
    """The state of a job; `core.jobs.lifecycle` has the table."""

    PENDING = "PENDING"
    ASSIGNED = "ASSIGNED"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class JobTrigger(StrEnum):
    """What moves a job from one state to another."""

    ASSIGNED = "assigned"
    STARTED = "started"
    SUCCEEDED = "succeeded"
    GAVE_UP = "gave-up"
    """It failed, and is not retried."""
    RETRIED = "retried"
    """An attempt failed, and another one follows."""
    CANCELLED = "cancelled"


class RunState(StrEnum):
    """The state of a run of a pipeline; `core.pipelines.lifecycle` has the table."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class RunTrigger(StrEnum):
    """What moves a run of a pipeline from one state to another."""

    STARTED = "started"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class StepState(StrEnum):
    """The state of a step of a run, and of one of its items; `core.pipelines.lifecycle` has the table."""

    WAITING = "WAITING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"
    CANCELLED = "CANCELLED"


class StepTrigger(StrEnum):
    """What moves a step, or one of its items, from one state to another."""

    STARTED = "started"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    RETRIED = "retried"
    """An attempt failed, and another one follows."""
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


class OrderKind(StrEnum):
    APPLY = "apply"
    REMOVE = "remove"


class OnUnhealthy(StrEnum):
    """What a node does with a component that becomes unhealthy after it was installed."""

    RESTART = "restart"
    REPORT = "report"
    """Only report it."""


class Step(StrEnum):
    """What a node is doing for an order right now."""

    ACCEPTED = "accepted"
    FETCHING = "fetching"
    PULLING = "pulling"
    CREATING = "creating"
    CONFIGURING = "configuring"
    """Variables, files and secrets are prepared; a part of creating, as the next one."""
    NETWORKING = "networking"
    STARTING = "starting"
    CHECKING = "checking"
    HEALTHY = "healthy"
    STOPPING = "stopping"
    REMOVED = "removed"
    DRIFTED = "drifted"
    """A component no longer runs as installed: the node is about to repair it."""
    RESTORED = "restored"
    WAITING = "waiting"
    """Waiting for the next attempt; set by the site."""


class NoticeCode(StrEnum):
    """What a node reports to its site apart from the results of orders, or a site detects about a node."""

    MESSAGE_REFUSED = "message-refused"
    """It received a message that it cannot read or does not know."""
    ROW_SET_ASIDE = "journal-row-set-aside"
    """A row of its journal is corrupt; it is set aside, and the site sends the order again."""
    ORPHANS_REMOVED = "orphans-removed"
    """Containers of a node that no longer exists were found on its engine."""
    ORPHANS_KEPT = "orphans-kept"
    TWIN = "twin"
    """Two machines connect under the id of one node."""
    VERSION_SKEW = "version-skew"
    """It is more than one release older or newer than its site."""


class Feature(StrEnum):
    """What a role supports beyond the first release, as sent in its hello."""

    NOTICE = "notice"
    """A site: notices of what a node did or refused without an order."""
    ORPHANS = "orphans"
    """A site: workloads on a node's engine that are not in its journal."""
    REFUSALS = "refusals"
    """A node: the notice that its site could not read one of its messages."""
    LOGS = "logs"
    """A site: log lines of a node."""
    STORED_LOGS = "stored-logs"
    """A site: numbered log lines of a node's buffer, which it stores and acknowledges."""
    TELEMETRY = "telemetry"
    """A site: measurements of a node."""
    REPLICAS = "replicas"
    """A site: the inference engines that a node has handed over."""
    SETTINGS = "settings"
    """A node: settings that change while it runs."""
    REPLIES = "replies"
    """Central and sites: a reply to any request, by the id that the request carries."""
    JOB_ENTRYPOINT = "job-entrypoint"
    """Sites and nodes: a job's program in place of its image's entrypoint."""
    JOB_INFERENCE = "job-inference"
    """A site: jobs that are inference requests."""
    RESTATE = "restate"
    """A site: central's request to report again all that there is to say of some deployments."""


class SubjectKind(StrEnum):
    """What an event is about."""

    APP = "app"
    DEPLOYMENT = "deployment"
    ROLLOUT = "rollout"
    SITE = "site"
    NODE = "node"
    TOKEN = "token"
    IDENTITY = "identity"
    JOB = "job"
    TASK = "task"
    POOL = "pool"
    PIPELINE = "pipeline"


class LogStream(StrEnum):
    """Parts of the one log with their own retention, so that many events of one kind do not displace the few of
    another."""

    FLEET = "fleet"
    JOBS = "jobs"
    TASKS = "tasks"


class EventKind(StrEnum):
    """Names of the events in the one log; the SSE `event:` field carries them unchanged.

    A kind that another version has written is kept: it is not a member, but has a value like one."""

    @classmethod
    def _missing_(cls, value: object) -> "EventKind | None":
        if not isinstance(value, str):
            return None
        unknown = str.__new__(cls, value)
        unknown._name_, unknown._value_ = value, value
        return unknown

    APP_ADDED = "app.added"
    APP_REMOVED = "app.removed"
    DEPLOYMENT_CREATED = "deployment.created"
    DEPLOYMENT_CHANGED = "deployment.changed"
    DEPLOYMENT_UNWANTED = "deployment.unwanted"
    DEPLOYMENT_STATE = "deployment.state"
    DEPLOYMENT_PROGRESS = "deployment.progress"
    DEPLOYMENT_REFUSED = "deployment.refused"
    DEPLOYMENT_PINNED = "deployment.pinned"
    DRIFT_FOUND = "drift.found"
    DRIFT_REPAIRED = "drift.repaired"
    HOLD_SET = "hold.set"
    HOLD_LIFTED = "hold.lifted"
    INSTANCE_STATE = "instance.state"
    INSTANCE_STALE = "instance.stale"
    INSTANCE_UNHEALTHY = "instance.unhealthy"
    """An installed release is unhealthy, or stopped and cannot be started again. Its state stays INSTALLED."""
    INSTANCE_HEALTHY = "instance.healthy"
    REPORT_SET_ASIDE = "report.set-aside"
    ROW_LEFT_OUT = "database.row-left-out"
    """A row of the role's own database cannot be read; everything else is."""
    SITE_JOINED = "site.joined"
    SITE_DEVICES = "site.devices"
    """A Margo client has removed a device that something is deployed to, or has reported it again."""
    SITE_LABELLED = "site.labelled"
    SITE_REMOVED = "site.removed"
    SITE_SYNCED = "site.synced"
    SITE_PROBLEM = "site.problem"
    SITE_RESTATED = "site.restated"
    NODE_JOINED = "node.joined"
    NODE_LIVENESS = "node.liveness"
    NODE_LEFT = "node.left"
    NODE_DRAINED = "node.drained"
    NODE_UNDRAINED = "node.undrained"
    NODE_SETTINGS = "node.settings"
    """An operator has changed settings of a node while it runs."""
    NODE_NOTICE = "node.notice"
    """Something a node did or refused without an order; `data.code` says what."""
    ROLLOUT_STATE = "rollout.state"
    JOB_STATE = "job.state"
    PIPELINE_STATE = "pipeline.state"
    PIPELINE_STEP = "pipeline.step"
    PIPELINE_SAVED = "pipeline.saved"
    PIPELINE_REMOVED = "pipeline.removed"
    PIPELINE_PAUSED = "pipeline.paused"
    PIPELINE_RESUMED = "pipeline.resumed"
    PIPELINE_SKIPPED = "pipeline.skipped"
    """A time of a schedule came, and no run began."""


class Code(StrEnum):
    """Why work on a node failed; the same code from the node to the CLI."""

    COMPONENT_FETCH_FAILED = "COMPONENT_FETCH_FAILED"
    IMAGE_PULL_FAILED = "IMAGE_PULL_FAILED"
    CREATE_FAILED = "CREATE_FAILED"
    HEALTH_CHECK_FAILED = "HEALTH_CHECK_FAILED"
    EXITED = "EXITED"
    TIMEOUT = "TIMEOUT"
    DISK_FULL = "DISK_FULL"
    ENGINE_UNREACHABLE = "ENGINE_UNREACHABLE"
    UNSUPPORTED_TYPE = "UNSUPPORTED_TYPE"
    UNSUPPORTED_KIND = "UNSUPPORTED_KIND"
    """A chart contains something that only Kubernetes can run, and the node has none."""
    NOT_ALLOWED = "NOT_ALLOWED"
    """A component requires something of the machine that the node's owner has not permitted (`--allow`)."""
    PREFLIGHT_FAILED = "PREFLIGHT_FAILED"
    """The machine lacks what an inference engine needs; the message names it, and how to get it."""
    REMOVE_FAILED = "REMOVE_FAILED"
    NODE_OFFLINE = "NODE_OFFLINE"
    NO_ELIGIBLE_NODE = "NO_ELIGIBLE_NODE"
    SECRET_MISSING = "SECRET_MISSING"
    INVALID_ORDER = "INVALID_ORDER"
    """The node cannot read its order."""
    UNKNOWN_KIND = "UNKNOWN_KIND"
    """The node has no handler for this kind of work: it is of another version, or was started without it."""
    NODE_CRASHED = "NODE_CRASHED"
    """The node was killed repeatedly while it carried out the order."""
    INTERNAL = "INTERNAL"
