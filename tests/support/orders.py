"""Orders for nodes under test. A component's `null` extension asks the null runtime for misfortune."""

from typing import Any

from homeport.core.model.deployment import ComponentSpec, Release, digest_of
from homeport.core.model.order import Order
from homeport.vocabulary import DeploymentId, Generation, OrderKind, ProfileType
from tests.support.builders import deployment_id


def a_component(
    name: str = "web",
    revision: str = "1.0.0",
    *,
    wait: bool = True,
    timeout_seconds: float = 5.0,
    kind: ProfileType = ProfileType.COMPOSE,
    **misfortune: Any,
) -> ComponentSpec:
    extensions = {"x-homeport-extensions": {"null": misfortune}} if misfortune else {}
    return ComponentSpec(
        name,
        kind,
        f"oci://registry.example/{name}",
        revision,
        wait=wait,
        timeout_seconds=timeout_seconds,
        extensions=extensions,
    )


def a_release(*components: ComponentSpec, key: DeploymentId | None = None) -> Release:
    parts = components or (a_component(),)
    revision = digest_of([part.digest for part in parts])
    return Release(key or deployment_id(), "app", revision, parts[0].revision, parts)


def to_apply(generation: int, *components: ComponentSpec, key: DeploymentId | None = None) -> Order:
    release = a_release(*components, key=key)
    return Order(Generation(generation), release.deployment_id, OrderKind.APPLY, release, reason="a test asks for it")


def to_remove(generation: int, *, key: DeploymentId | None = None) -> Order:
    return Order(Generation(generation), key or deployment_id(), OrderKind.REMOVE, None)
