"""Status of deployments in Margo's words: which of our states is which of Margo's, and the overall state."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import State


class MargoState(StrEnum):
    PENDING = "pending"
    INSTALLING = "installing"
    INSTALLED = "installed"
    REMOVING = "removing"
    REMOVED = "removed"
    FAILED = "failed"


M = MargoState
# fmt: off
MARGO_OF: Final[Mapping[State, MargoState]] = {
    State.PENDING:      M.PENDING,
    State.INSTALLING:   M.INSTALLING,
    State.INSTALLED:    M.INSTALLED,
    State.UPDATING:     M.INSTALLING,
    State.ROLLINGBACK:  M.INSTALLING,   # with the error of the failed update
    State.FAILED:       M.FAILED,
    State.DELETING:     M.REMOVING,
    State.DELETED:      M.REMOVED,
}
OURS_OF: Final[Mapping[MargoState, State]] = {
    M.PENDING:     State.PENDING,
    M.INSTALLING:  State.INSTALLING,
    M.INSTALLED:   State.INSTALLED,
    M.REMOVING:    State.DELETING,
    M.REMOVED:     State.DELETED,
    M.FAILED:      State.FAILED,
}
# fmt: on
SEVERITY: Final = (M.FAILED, M.REMOVING, M.INSTALLING, M.PENDING, M.REMOVED, M.INSTALLED)
"""The most severe first."""


class GatewayCode(StrEnum):
    """Codes that Margo reserves; their source is the gateway."""

    UNKNOWN_CHILD = "101"
    CHILD_UNREACHABLE = "102"
    NO_AUTONOMOUS_PLACEMENT = "103"


@dataclass(frozen=True, slots=True)
class MargoError:
    code: str
    source: str
    message: str


@dataclass(frozen=True, slots=True)
class ComponentStatus:
    name: str
    state: MargoState
    error: MargoError | None = None


@dataclass(frozen=True, slots=True)
class MargoStatus:
    """What a client reports about one deployment."""

    deployment_id: str
    adopted_version: int
    state: MargoState
    components: tuple[ComponentStatus, ...]
    error: MargoError | None = None
    device_id: str | None = None


def overall(states: Sequence[MargoState]) -> MargoState:
    """The most severe state of the components."""
    return next(state for state in SEVERITY if state in states)


def status_body(status: MargoStatus) -> dict[str, object]:
    body: dict[str, object] = {
        "deploymentId": status.deployment_id,
        "adoptedManifestVersion": status.adopted_version,
        "status": {"state": status.state.value, **_error(status.error)},
        "components": [
            {"name": each.name, "state": each.state.value, **_error(each.error)} for each in status.components
        ],
    }
    if status.device_id is not None:
        body["deviceId"] = status.device_id
    return body


def _error(error: MargoError | None) -> dict[str, object]:
    if error is None:
        return {}
    return {"error": {"code": error.code, "source": error.source, "message": error.message}}
