"""Secrets of sites. Users set, list and remove them and never see one again; a value is returned only to the site it
belongs to, authenticated by its certificate, or by central's local machine key."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Final

from fastapi import Depends, Path, Query, Response
from pydantic import Field

from homeport.central.parts import CentralParts
from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.core.model.access import SecretRecord
from homeport.core.model.caller import Caller, CallerKind
from homeport.core.secrets import COUNT_MAX, NAME_PATTERN, reference
from homeport.errors import InvalidInput, NotAuthorized, Problem
from homeport.fleet.shared.overview import find_site
from homeport.fleet.shared.scope import seen_by
from homeport.ports import SECRETS, SecretFilter
from homeport.serving.bodies.body import Body, PageBody, SiteNameText
from homeport.serving.capability import Routes
from homeport.serving.middleware.callers import CallerOf, check_sites
from homeport.serving.pages import PageRequest, asked
from homeport.serving.routing import Router
from homeport.vocabulary import SITE_NAME_PATTERN, SiteName

SiteRef = Annotated[str, Path(pattern=SITE_NAME_PATTERN, description="Small letters, digits and dashes.")]
NameRef = Annotated[str, Path(pattern=NAME_PATTERN, description="Letters, digits, dots, dashes and underscores.")]


class SetSecret(Body):
    """`value` is encrypted at once; no response, log or event contains it."""

    value: str = Field(repr=False)


class SecretBody(Body):
    site: str
    name: str
    version: int
    reference: str
    """The reference that a parameter uses instead of the value."""
    updated_at: datetime
    updated_by: str


class SecretsBody(PageBody):
    secrets: list[SecretBody]


SecretsPage = Annotated[PageRequest, Depends(asked(SECRETS, SecretBody))]


class SecretValueBody(Body):
    version: int
    value: str = Field(repr=False)


class SecretValuesBody(Body):
    versions: Mapping[str, int]
    """Every secret of the site."""
    changed: Mapping[str, SecretValueBody]
    """Those whose version differs from the one that the site has."""


# fmt: off
ACTIONS: Final[Actions] = {
    # names only: operators must know what can be referenced
    ("GET", "/api/v1/secrets"): Action("secrets.list", Level.OPERATOR, Scope.SEEN, Audit.NONE),
    ("GET", "/api/v1/sites/{site}/secrets"): Action("secrets.list", Level.OPERATOR, Scope.SITE, Audit.NONE),
    ("GET", "/api/v1/sites/{site}/secrets/values"):
        Action("sites.secrets", Level.MACHINE_ONLY, Scope.SITE, Audit.NONE),
    ("PUT", "/api/v1/sites/{site}/secrets/{name}"): Action("secrets.set", Level.ADMIN, Scope.SITE, Audit.WAIT),
    ("DELETE", "/api/v1/sites/{site}/secrets/{name}"): Action("secrets.remove", Level.ADMIN, Scope.SITE, Audit.WAIT),
}
# fmt: on


def secrets_routes(central: CentralParts) -> Routes:
    router = Router(tags=["secrets"])
    secrets = central.secrets

    @router.get(
        "/api/v1/secrets", summary="List the names of secrets", response_model=SecretsBody, responses={404: {}}
    )
    async def list_secrets(
        caller: CallerOf,
        page: SecretsPage,
        site: Annotated[SiteNameText | None, Query(description="Only this site's.")] = None,
    ) -> Response:
        """Names, versions and ages; never values."""
        if site is not None:
            check_sites(caller, [site])
        return await _listed(central, caller, page, site)

    @router.get(
        "/api/v1/sites/{site}/secrets",
        summary="List the names of a site's secrets",
        response_model=SecretsBody,
        responses={404: {}},
    )
    async def list_secrets_of_site(caller: CallerOf, site: SiteRef, page: SecretsPage) -> Response:
        return await _listed(central, caller, page, site)

    @router.get(
        "/api/v1/sites/{site}/secrets/values",
        summary="For the site itself: the values that it does not have yet",
        responses={403: {}},
    )
    async def read_secret_values(
        caller: CallerOf,
        site: SiteRef,
        response: Response,
        known: Annotated[
            Sequence[str], Query(max_length=COUNT_MAX, description="NAME:VERSION of each that the site has.")
        ] = (),
    ) -> SecretValuesBody:
        """Not available to users of any role."""
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
    async def set_secret(caller: CallerOf, site: SiteRef, name: NameRef, body: SetSecret) -> SecretBody:
        """Deployments that refer to it are updated. The same value again changes nothing."""
        return _body(await secrets.set(SiteName(site), name, body.value, caller))

    @router.delete(
        "/api/v1/sites/{site}/secrets/{name}",
        summary="Remove a secret that no deployment uses",
        status_code=204,
        response_class=Response,
        responses={404: {}, 409: {}},
    )
    async def remove_secret(caller: CallerOf, site: SiteRef, name: NameRef) -> Response:
        await secrets.remove(SiteName(site), name, caller)
        return Response(status_code=204)

    return Routes(router, ACTIONS)


async def _listed(central: CentralParts, caller: Caller, page: PageRequest, site: str | None) -> Response:
    async with seen_by(caller, central.store).read() as reader:
        if site is not None:
            await find_site(reader, site)
        found = await reader.page(SECRETS, SecretFilter(site=SiteName(site) if site else None), page.cut)
    return page.answer("secrets", [_body(each) for each in found.items], found.next)


def check_is_the_site(caller: Caller, site: str) -> None:
    """Raises NotAuthorized for every caller but the site itself; a client that is not a site is a machine too. A
    machine without a certificate has proven that it can read central's own files, including the key that decrypts the
    values."""
    is_itself = caller.sites == (site,) and caller.name == site
    if caller.kind is not CallerKind.MACHINE or (caller.sites and not is_itself):
        raise NotAuthorized(
            f"The values of secrets are answered to site {site} alone.",
            target=site,
            hint="Set the secret again if its value is lost.",
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
