"""The words of Homeport. A word means one thing in code, API, CLI, events and docs, and it is defined here.

This module imports nothing of ours, so that every layer can speak the same language.
"""

from enum import StrEnum
from typing import Final, NewType

AppId = NewType("AppId", str)
"""UUID of one app version in central's catalog."""
DeploymentId = NewType("DeploymentId", str)
"""UUID; equals the name of the deployment's file in Git."""
RolloutId = NewType("RolloutId", str)
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
"""Stands for "no node" in an instance that its site could not place."""

SITE_NAME_PATTERN: Final = r"^[a-z0-9][a-z0-9-]{0,62}$"
NODE_ID_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
ID_PREFIX_LENGTH_MIN: Final = 4
"""A shorter beginning of an id is more likely a name that was typed wrong."""


class State(StrEnum):
    """Where one instance of a deployment stands; `core.lifecycle.deployment` has the table."""

    PENDING = "PENDING"
    INSTALLING = "INSTALLING"
    INSTALLED = "INSTALLED"
    UPDATING = "UPDATING"
    FAILED = "FAILED"
    ROLLINGBACK = "ROLLINGBACK"
    DELETING = "DELETING"
    DELETED = "DELETED"


class Happening(StrEnum):
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
    """No step: how an instance stands, told anew by its site. It is in central's history only."""


class Actor(StrEnum):
    """Who may make a thing happen."""

    SITE = "site"
    NODE = "node"
    CENTRAL = "central"
    PERSON = "person"
    """An operator, through the API or by a push."""


class Liveness(StrEnum):
    """How long a node has been silent, in words."""

    LIVE = "live"
    STALE = "stale"
    LOST = "lost"


class ProfileType(StrEnum):
    """How the components of a profile are packaged (Margo's names)."""

    COMPOSE = "compose"
    HELM = "helm"
    CUSTOM = "custom"


class PlacementMode(StrEnum):
    """How many of the nodes that suit a deployment get an instance."""

    EACH = "each"
    ONE = "one"
    COUNT = "count"


class RolloutState(StrEnum):
    """Where a rollout stands; `core.lifecycle.rollout` has the table."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    """Too many of its sites failed. A person resumes or aborts it."""
    DONE = "done"
    ABORTED = "aborted"
    SUPERSEDED = "superseded"


class RolloutHappening(StrEnum):
    """What moves a rollout from one state to another."""

    PAUSED = "paused"
    RESUMED = "resumed"
    ABORTED = "aborted"
    BROKE = "broke"
    """More sites are bad than its threshold allows."""
    REACHED_ALL = "reached-all"
    SUPERSEDED = "superseded"


class RolloutWord(StrEnum):
    """What the operator wants of a rollout, as its file in Git says."""

    RUNNING = "running"
    PAUSED = "paused"
    ABORTED = "aborted"


class Standing(StrEnum):
    """What has become of a rollout at one of its sites."""

    WAITING = "waiting"
    """Its wave has not begun."""
    PENDING = "pending"
    INSTALLED = "installed"
    FAILED = "failed"
    """Failed for good, or rolled back."""
    OFFLINE = "offline"
    """Not heard of for a while; its file waits for it in Git."""
    HELD = "held"
    """Somebody wants nothing changed there for now; its file waits for the end of that in Git."""
    LEFT = "left"
    """Deleted there, or overtaken by a newer deployment: no longer this rollout's affair."""


class OrderKind(StrEnum):
    APPLY = "apply"
    REMOVE = "remove"


class Step(StrEnum):
    """What a node is doing for an order right now."""

    ACCEPTED = "accepted"
    FETCHING = "fetching"
    PULLING = "pulling"
    CREATING = "creating"
    STARTING = "starting"
    CHECKING = "checking"
    HEALTHY = "healthy"
    STOPPING = "stopping"
    REMOVED = "removed"
    DRIFTED = "drifted"
    """Something no longer runs as it was left: the node has seen it and is about to repair it."""
    RESTORED = "restored"
    WAITING = "waiting"
    """Nothing happens until the next attempt; said by the site."""


class EventKind(StrEnum):
    """Names of the events in the one log; the SSE `event:` field carries them unchanged."""

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
    SITE_JOINED = "site.joined"
    SITE_LABELLED = "site.labelled"
    SITE_SYNCED = "site.synced"
    SITE_PROBLEM = "site.problem"
    SITE_RESTATED = "site.restated"
    NODE_JOINED = "node.joined"
    NODE_LIVENESS = "node.liveness"
    NODE_LEFT = "node.left"
    NODE_DRAINED = "node.drained"
    NODE_UNDRAINED = "node.undrained"
    ROLLOUT_STATE = "rollout.state"


class Code(StrEnum):
    """Why work on a node failed, stable from the node to the CLI."""

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
    """A chart holds something that only Kubernetes could run, and the node has none."""
    REMOVE_FAILED = "REMOVE_FAILED"
    NODE_OFFLINE = "NODE_OFFLINE"
    NO_ELIGIBLE_NODE = "NO_ELIGIBLE_NODE"
    SECRET_MISSING = "SECRET_MISSING"
    INTERNAL = "INTERNAL"
