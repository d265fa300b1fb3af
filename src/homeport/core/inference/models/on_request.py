"""Where and how a model of the catalog is served when the first task asks for it: the deployment that is written
then. Pure."""

from collections.abc import Mapping
from typing import Any

from homeport.core.inference.engines.handoff import EngineName, Handoff, HandoffModel, Loading
from homeport.core.inference.engines.preparing import steps_of
from homeport.core.inference.engines.spec import BY_NAME, VARIABLES, EngineSpec, Mode, read_engine
from homeport.errors import InvalidInput, Problem
from homeport.lazy_dataclass import dataclass

NO_ADDRESS = "http://on-request.invalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class OnRequest:
    site: str
    app: str
    """The app of its engine, as the catalog of apps has it."""
    version: str
    engine: str
    name: str
    """Of the deployment, and of its pool."""
    parameters: Mapping[str, str]
    nodes: tuple[str, ...] = ()
    """Empty: any that fits."""
    count: int = 1

    def spec(self) -> EngineSpec:
        """Raises InvalidInput."""
        names = {key: variable for variable, key in VARIABLES.items()}
        unknown = sorted(self.parameters.keys() - names.keys())
        if unknown:
            message = f"has {unknown[0][:100]!r}, which is not a parameter of an engine"
            raise InvalidInput(problems=[Problem("on_request.parameters", message)])
        given = {names[key]: value for key, value in self.parameters.items()}
        return read_engine({"engine": self.engine}, given)

    def expected(self, model_id: str, *, size_bytes: int) -> Handoff:
        """Its replica, before anything of it exists: what tasks wait for."""
        spec = self.spec()
        pool_id = spec.pool or self.name
        return Handoff(
            engine=EngineName(self.engine),
            url=NO_ADDRESS,
            model=HandoffModel(model_id, size_bytes=size_bytes),
            provisioning_mode=spec.mode.value,
            pool_id=pool_id,
            replica_id=f"{self.site}/on-request",
            flags=spec.flags,
            device_mask=spec.device_mask or None,
            slots_total=spec.slots,
            ctx_max=spec.context,
            loading=Loading.LOADING,
            preparation=steps_of(
                engine=self.engine,
                model=model_id,
                pool_id=pool_id,
                provisions=spec.mode in {Mode.SOURCE, Mode.CONTAINER} or spec.fetches_binary,
                fetches=spec.engine not in BY_NAME,
                model_bytes=size_bytes,
            ),
        )


def read_on_request(data: Any) -> OnRequest | None:
    """As `asdict` made it. None for what a later release has written otherwise."""
    if not isinstance(data, Mapping):
        return None
    try:
        parameters = {str(name): str(value) for name, value in data["parameters"].items()}
        texts = {name: str(data[name]) for name in ("site", "app", "version", "engine", "name")}
        nodes = tuple(map(str, data.get("nodes") or ()))
        found = OnRequest(**texts, parameters=parameters, nodes=nodes, count=int(data.get("count") or 1))
        found.spec()
    except (InvalidInput, LookupError, TypeError, ValueError, AttributeError, OverflowError):
        return None
    return found
