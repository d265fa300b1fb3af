"""Access tokens over HTTP, the same at central and at a site. A token's text is only in the response that created
it."""

from datetime import datetime
from typing import Annotated, Final

from fastapi import Depends, Path, Response
from pydantic import Field

from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.core.model.access import ApiToken
from homeport.core.model.caller import Role
from homeport.identity.tokens import NAME_LENGTH_MAX
from homeport.ports import TOKENS
from homeport.serving.bodies.body import Body, Moment, PageBody
from homeport.serving.capability import Routes
from homeport.serving.middleware.authentication import Authenticator
from homeport.serving.middleware.callers import CallerOf
from homeport.serving.pages import PageRequest, asked
from homeport.serving.routing import Router
from homeport.vocabulary import SITE_NAME_PATTERN, SiteName

SiteText = Annotated[str, Field(pattern=SITE_NAME_PATTERN)]


class CreateToken(Body):
    name: str = Field(
        min_length=1, max_length=NAME_LENGTH_MAX, description="Name of its owner, recorded with all that they do."
    )
    role: Role
    sites: list[SiteText] = Field(default=[], max_length=1000, description="Empty: every site.")
    expires_at: Moment | None = Field(default=None, description="Without it, the token is good until revoked.")


class TokenBody(Body):
    id: str
    name: str
    role: str
    sites: list[str]
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


class CreatedTokenBody(TokenBody):
    token: str = Field(description="Shown this once.")


class TokensBody(PageBody):
    tokens: list[TokenBody]


class WhoAmIBody(Body):
    name: str
    role: str
    sites: list[str]
    kind: str


# fmt: off
ACTIONS: Final[Actions] = {
    ("POST", "/api/v1/tokens"): Action("tokens.create", Level.ADMIN, Scope.FLEET, Audit.WAIT),
    ("GET", "/api/v1/tokens"): Action("tokens.read", Level.ADMIN, Scope.FLEET, Audit.NONE),
    # for `login`: whose token is this
    ("GET", "/api/v1/tokens/self"): Action("tokens.self", Level.VIEWER, Scope.NONE, Audit.NONE),
    ("DELETE", "/api/v1/tokens/{token}"): Action("tokens.revoke", Level.ADMIN, Scope.FLEET, Audit.WAIT),
}
# fmt: on


def tokens_routes(authenticator: Authenticator) -> Routes:
    router = Router(tags=["tokens"])

    @router.post("/api/v1/tokens", summary="Make an access token", status_code=201, responses={409: {}})
    async def create_token(caller: CallerOf, body: CreateToken, response: Response) -> CreatedTokenBody:
        created = await authenticator.tokens.create(
            caller,
            name=body.name,
            role=body.role,
            sites=[SiteName(site) for site in body.sites],
            expires_at=body.expires_at,
        )
        response.headers["Cache-Control"] = "no-store"
        return CreatedTokenBody(**token_body(created.token).model_dump(), token=created.text)

    @router.get("/api/v1/tokens", summary="List access tokens, never their secrets", response_model=TokensBody)
    async def list_tokens(
        caller: CallerOf, page: Annotated[PageRequest, Depends(asked(TOKENS, TokenBody))]
    ) -> Response:
        found = await authenticator.tokens.page(page.cut)
        return page.answer("tokens", [token_body(token) for token in found.items], found.next)

    @router.get("/api/v1/tokens/self", summary="Who am I, and what may I do?")
    async def show_myself(caller: CallerOf) -> WhoAmIBody:
        return WhoAmIBody(name=caller.name, role=caller.role.value, sites=list(caller.sites), kind=caller.kind.value)

    @router.delete("/api/v1/tokens/{token}", summary="Revoke an access token, at once", responses={404: {}})
    async def revoke_token(
        caller: CallerOf,
        token: Annotated[str, Path(max_length=200, description="Its id or its name.")],
    ) -> TokenBody:
        """Open streams of its holder end too."""
        revoked = await authenticator.tokens.revoke(caller, token)
        authenticator.end(revoked.id)
        return token_body(revoked)

    return Routes(router, ACTIONS)


def token_body(token: ApiToken) -> TokenBody:
    return TokenBody(
        id=token.id,
        name=token.name,
        role=token.role.value,
        sites=list(token.sites),
        created_at=token.created_at,
        created_by=token.created_by,
        expires_at=token.expires_at,
        revoked_at=token.revoked_at,
        last_used_at=token.last_used_at,
    )
