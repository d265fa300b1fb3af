"""Secrets of sites. People set, list and remove them and never see one again; a value is answered only to the site it
belongs to, known by its certificate, or to a site on this very machine."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Response
from pydantic import Field

from homeport.central.parts import CentralParts
from homeport.core.access.roles import may_see
from homeport.core.model.access import SecretRecord
from homeport.core.model.caller import Caller, CallerKind
from homeport.core.secrets import COUNT_MAX, NAME_PATTERN, reference
from homeport.errors import InvalidInput, NotAuthorized, Problem
from homeport.serving.bodies.body import Body, SiteNameText
from homeport.serving.callers import allowed, check_sites
from homeport.vocabulary import SITE_NAME_PATTERN, SiteName

SiteRef = Annotated[str, Path(pattern=SITE_NAME_PATTERN, description="Small letters, digits and dashes.")]
NameRef = Annotated[str, Path(pattern=NAME_PATTERN, description="Letters, digits, dots, dashes and underscores.")]


class SetSecret(Body):
    """`value` is sealed at once; no answer, log or event repeats it."""

    value: str = Field(repr=False)


class SecretBody(Body):
    site: str
    name: str
    version: int
    reference: str
    """What a parameter says in the place of the value."""
    updated_at: datetime
    updated_by: str


class SecretsBody(Body):
    secrets: list[SecretBody]


class SecretValueBody(Body):
    version: int
    value: str = Field(repr=False)


class SecretValuesBody(Body):
    versions: Mapping[str, int]
    """Every secret of the site."""
    changed: Mapping[str, SecretValueBody]
    """Those whose version is not the one that the site named."""


def secrets_router(central: CentralParts) -> APIRouter:
    router = APIRouter(tags=["secrets"])
    secrets = central.secrets

    @router.get("/api/v1/secrets", summary="List the names of secrets", responses={404: {}})
    async def list_secrets(
        caller: Annotated[Caller, Depends(allowed("secrets.list"))],
        site: Annotated[SiteNameText | None, Query(description="Only this site's.")] = None,
    ) -> SecretsBody:
        """Names, versions and ages; never values."""
        if site is not None:
            check_sites(caller, [site])
        found = await secrets.list(SiteName(site) if site else None)
        return SecretsBody(secrets=[_body(each) for each in found if may_see(caller, each.site)])

    @router.get("/api/v1/sites/{site}/secrets", summary="List the names of a site's secrets", responses={404: {}})
    async def list_secrets_of_site(
        caller: Annotated[Caller, Depends(allowed("secrets.list"))], site: SiteRef
    ) -> SecretsBody:
        return SecretsBody(secrets=[_body(each) for each in await secrets.list(SiteName(site))])

    @router.get(
        "/api/v1/sites/{site}/secrets/values",
        summary="For the site itself: the values that it does not have yet",
        responses={403: {}},
    )
    async def read_secret_values(
        caller: Annotated[Caller, Depends(allowed("sites.secrets"))],
        site: SiteRef,
        response: Response,
        known: Annotated[
            Sequence[str], Query(max_length=COUNT_MAX, description="NAME:VERSION of each that the site has.")
        ] = (),
    ) -> SecretValuesBody:
        """No person's token opens this, of whatever role."""
        check_is_the_site(caller, site)
        there = await secrets.for_site(SiteName(site), known=_versions(known))
        response.headers["cache-control"] = "no-store"
        changed = {
            name: SecretValueBody(version=each.version, value=each.value) for name, each in there.changed.items()
        }
        return SecretValuesBody(versions=there.versions, changed=changed)

    @router.put(
        "/api/v1/sites/{site}/secrets/{name}", summary="Set a secret, or change it", responses={404: {}, 409: {}}
    )
    async def set_secret(
        caller: Annotated[Caller, Depends(allowed("secrets.set"))], site: SiteRef, name: NameRef, body: SetSecret
    ) -> SecretBody:
        """Deployments that refer to it are updated. The same value again changes nothing."""
        return _body(await secrets.set(SiteName(site), name, body.value, caller))

    @router.delete(
        "/api/v1/sites/{site}/secrets/{name}",
        summary="Remove a secret that no deployment uses",
        status_code=204,
        response_class=Response,
        responses={404: {}, 409: {}},
    )
    async def remove_secret(
        caller: Annotated[Caller, Depends(allowed("secrets.remove"))], site: SiteRef, name: NameRef
    ) -> Response:
        await secrets.remove(SiteName(site), name, caller)
        return Response(status_code=204)

    return router


def check_is_the_site(caller: Caller, site: str) -> None:
    """Raises NotAuthorized for everybody but the site itself, and a process on this machine where that is open."""
    is_local = caller.kind is CallerKind.LOCAL
    is_itself = caller.kind is CallerKind.MACHINE and caller.sites == (site,) and caller.name == site
    if not is_local and not is_itself:
        raise NotAuthorized(
            f"The values of secrets are answered to site {site} alone.",
            target=site,
            hint="Set a secret anew if its value is lost.",
        )


def _versions(known: Sequence[str]) -> dict[str, int]:
    versions = {}
    for text in known:
        name, _, version = text.rpartition(":")
        if not name or not version.isdecimal() or len(version) > 18:
            raise InvalidInput(problems=[Problem("known", "must be NAME:VERSION.")])
        versions[name] = int(version)
    return versions


def _body(record: SecretRecord) -> SecretBody:
    return SecretBody(
        site=record.site,
        name=record.name,
        version=record.version,
        reference=reference(record.name),
        updated_at=record.updated_at,
        updated_by=record.updated_by,
    )
