"""What the capabilities around inference need from each other: pools, the model catalog, control of engines.

They are packages of their own and never import each other. The role has one `InferencePorts`; each capability puts
its own part into it when it is created, in the order of the role's list.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from homeport.core.inference.engines.gpus import GpusOfNode
from homeport.core.inference.engines.handoff import Handoff
from homeport.core.inference.models.lifecycle import CatalogModel, ModelLifecycle
from homeport.core.inference.records import TaskState
from homeport.core.inference.request import InferenceRequest
from homeport.core.inference.scaling import PoolUse
from homeport.core.model.caller import Caller
from homeport.lazy_dataclass import dataclass
from homeport.ports.links.tunnel import TunnelStream
from homeport.vocabulary import SiteName

OpenStream = Callable[[], AbstractAsyncContextManager[TunnelStream]]
"""A connection to an engine through a tunnel. Comparable: equal ones lead to the same engine."""


class Pools(Protocol):
    """Where engines are announced. Neither call blocks; health is checked afterwards."""

    def bind(self, handoff: Handoff, opens: OpenStream | None = None) -> None:
        """`opens` leads to an engine of another machine; None where its address is connected to directly. Adds
        a replica, or replaces the one with the same pool and replica id. Binding the same again is harmless: work
        under way continues."""
        ...

    def unbind(self, pool_id: str, replica_id: str) -> None:
        """New tasks go elsewhere; those under way finish or fail by themselves. An unknown replica is ignored."""
        ...

    def sites_serving(self, model_ref: str) -> Collection[str]:
        """The sites with an engine that serves this model, or that does not say what it serves."""
        ...


class PoolDemand(Protocol):
    """How much the pools are used that are loaded by their use, by the task plane of this role."""

    def use_of(self, pool_id: str) -> PoolUse: ...

    def busy_of(self, pool_id: str) -> Mapping[str, int]:
        """Tasks by replica."""
        ...

    def on_demand(self, listener: Callable[[], None]) -> None:
        """Called at each change, often. Must not block."""
        ...


class ModelCatalog(Protocol):
    def find(self, reference: str) -> CatalogModel | None:
        """By id or by the reference it was fetched from; None for a model that the catalog does not have. Answers
        from memory: admission asks for every task."""
        ...

    def states(self) -> Mapping[str, ModelLifecycle]:
        """Of all models, by id; for metrics."""
        ...


class EngineControl(Protocol):
    """Starts and stops engines. Each call returns when it is done, and raises a HomeportError that says why not."""

    async def reload(self, current: Sequence[Handoff], model_ref: str) -> Sequence[Handoff]:
        """Serves another model on the same pool, replicas and devices: on all of them. When one fails, all serve the
        old model again before the error is raised."""
        ...

    async def stop(self, current: Handoff) -> None:
        """Ends the engine. Starting it again is `reload`, or a new deployment."""
        ...

    async def remove_models(self, models: tuple[str, ...]) -> None:
        """From the catalog, with the files that it keeps of them. Those it does not have are passed over."""
        ...


class EnginesOnRequest(Protocol):
    """Starts the engine of a model that no pool has, when a task asks for it."""

    def offer(self, model_ref: str) -> Handoff | None:
        """The replica that could be expected; None where the policy does not let it be started. Answers from
        memory."""
        ...

    def models(self) -> Mapping[str, tuple[str, str]]:
        """Those that a task may ask for: the site and engine of each."""
        ...

    def start(self, expected: Handoff) -> None:
        """Begins it. The expected replica is bound, and is unbound when others have taken its place, or when it has
        failed and that was said. Must not block."""
        ...


@dataclass(frozen=True, slots=True)
class TaskAnswer:
    """How a task ended."""

    text: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    replica: str = ""
    error_code: str = ""
    """Empty where it succeeded."""
    error: str = ""
    is_retriable: bool = False
    model: str = ""
    task_id: str = ""
    restarts: int = 0
    """How often the role was restarted while the task ran, and it was asked again."""


@dataclass(frozen=True, slots=True)
class TaskSeen:
    """A task as it is now."""

    state: TaskState
    replica: str = ""
    answer: TaskAnswer | None = None
    """When it has ended."""


class TaskAsker(Protocol):
    """The task plane of this process, for other capabilities."""

    async def submit(self, body: bytes, caller: Caller) -> None:
        """Submits a task as `/v2/tasks` takes it, and returns when it is durable. The same body again is the same
        task. Raises InvalidInput, NotFound where no pool has the model, Conflict where the id is another task's, and
        PeerUnavailable where it cannot be admitted now."""
        ...

    async def look(self, task_id: str, caller: Caller) -> TaskSeen | None:
        """None for a task that is not known, or is another caller's."""
        ...

    async def ask(
        self,
        request: InferenceRequest,
        caller: Caller,
        *,
        task_id: str,
        timeout_seconds: float,
        on_submitted: Callable[[], None],
        on_text: Callable[[str], None] | None = None,
        restarts_max: int = 5,
    ) -> TaskAnswer:
        """Submits it as a task of `/v2/tasks`, and follows it to its end. The same id again, also after a restart, is
        the same task; one that the restart has interrupted is asked again up to so many times, under an id that
        follows from this one. `on_text` gets the answer as it is generated, whole characters only, and of a task that
        is asked again from its beginning. Raises PeerUnavailable where it cannot be admitted now."""
        ...

    async def cancel(self, task_id: str, caller: Caller) -> None:
        """With those that took its place after a restart. Unknown ones, and those that have ended, are ignored.
        Tried again for some seconds; raises TransientError where one could not be cancelled."""
        ...


@dataclass(slots=True)
class InferencePorts:
    pools: Pools | None = None
    has_heard_of: Callable[[SiteName], bool] = lambda site: True
    """Whether it is known since the start of this role which engines that site has."""
    demand: PoolDemand | None = None
    verified: Callable[[str, str], None] = lambda result, reason: None
    """Counts a check of a model against its digest."""
    models: ModelCatalog | None = None
    """None where no catalog is served: every model that a pool has is accepted."""
    gpus: Callable[[Collection[tuple[str, str]]], Mapping[tuple[str, str], GpusOfNode]] | None = None
    """The GPUs of these nodes, by site and node, as measured. None where nothing measures them."""
    engines: EngineControl | None = None
    """None where no engine can be started from here: external engines only."""
    on_request: EnginesOnRequest | None = None
    """None where no engine is started for a task."""
    end_pool: Callable[[str], None] = lambda pool_id: None
    """Ends what waits and runs in a pool, because its model is retired and the time for that is over."""
    tasks: TaskAsker | None = None
    """None where no task plane is served."""
