"""The models capability of central: the catalog, the replicas of all sites, and changing their engines."""

import time
from pathlib import Path
from typing import Final

from homeport.adapters.registry.credentials import default_auth_files
from homeport.adapters.registry.oci import OciRegistry
from homeport.adapters.registry.web_files import ModelSourceOptions
from homeport.capability.central import CentralCapability, CentralPart, Loop
from homeport.fleet.central.platform import CentralPlatform
from homeport.models.central.catalog import Catalog
from homeport.models.central.demand import FleetDemand
from homeport.models.central.engine_control import DeployedEngines
from homeport.models.central.on_request import CatalogEngines
from homeport.models.central.pulls import Pulls
from homeport.models.central.replicas import FleetReplicas
from homeport.models.central.routes import catalog_routes
from homeport.models.central.trust import ModelTrust, read_model_key
from homeport.models.store.fetching import ModelFetcher
from homeport.models.store.index import ModelIndex

TOPIC: Final = "replicas"
FOLDER: Final = "models"


def _part(central: CentralPlatform) -> CentralPart:
    replicas = FleetReplicas(central)
    demand = FleetDemand(central, replicas.bound)
    replicas.on_change = demand.look
    central.inference.has_heard_of = replicas.bound.__contains__

    async def tell(central: CentralPlatform) -> None:
        await demand.run()

    async def ask(central: CentralPlatform) -> None:
        await replicas.run()

    loops = (Loop("engine demand", tell), Loop("engine replicas", ask))
    if central.data is None:
        return CentralPart(from_sites={TOPIC: replicas.take}, loops=loops)
    index = ModelIndex(central.data / FOLDER)
    registry = OciRegistry(
        auth_files=default_auth_files(central.environment, Path.home()), access_folder=central.access_folder
    )
    trust = ModelTrust(registry, [read_model_key(path) for path in central.model_keys])
    catalog = Catalog(central.store, central.bus, central.clock, trust, index)
    catalog.on_change(demand.look)
    central.inference.models = catalog
    engines = central.inference.engines = DeployedEngines(central, catalog, trust)
    on_request = central.inference.on_request = CatalogEngines(central, catalog, engines, replicas.bound)
    options = ModelSourceOptions.from_environment(central.environment)
    pulls = Pulls(ModelFetcher(index, registry, options, now_ms=lambda: int(time.time() * 1000)), catalog)

    async def read(central: CentralPlatform) -> None:
        await catalog.run()

    async def serve(central: CentralPlatform) -> None:
        await on_request.run()

    return CentralPart(
        routes=(catalog_routes(catalog, pulls, trust, central.inference.verified),),
        before_serving=(catalog.load,),
        loops=(*loops, Loop("model catalog", read), Loop("model-pulls", pulls.run), Loop("models on request", serve)),
        from_sites={TOPIC: replicas.take},
    )


MODELS: Final = CentralCapability("models", _part)
