"""Access tokens over HTTP, the same at central and at a site. A token's text is in one answer only: the one that
made it."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Response
from pydantic import AwareDatetime, Field

from homeport.core.model.access import ApiToken
from homeport.core.model.caller import Caller, Role
from homeport.fleet.tokens import NAME_LENGTH_MAX
from homeport.serving.authentication import Gate
from homeport.serving.bodies.body import Body
from homeport.serving.callers import allowed
from homeport.vocabulary import SITE_NAME_PATTERN, SiteName

SiteText = Annotated[str, Field(pattern=SITE_NAME_PATTERN)]


class CreateToken(Body):
    name: str = Field(min_length=1, max_length=NAME_LENGTH_MAX, description="Whose it is; it signs what they do.")
    role: Role
    sites: list[SiteText] = Field(default=[], max_length=1000, description="Empty: every site.")
    expires_at: AwareDatetime | None = Field(default=None, description="Without it, the token is good until revoked.")


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


class TokensBody(Body):
    tokens: list[TokenBody]


class WhoAmIBody(Body):
    name: str
    role: str
    sites: list[str]
    kind: str


def tokens_router(gate: Gate) -> APIRouter:
    router = APIRouter(tags=["tokens"])

    @router.post("/api/v1/tokens", summary="Make an access token", status_code=201, responses={409: {}})
    async def create_token(
        caller: Annotated[Caller, Depends(allowed("tokens.create"))], body: CreateToken, response: Response
    ) -> CreatedTokenBody:
        created = await gate.tokens.create(
            caller,
            name=body.name,
            role=body.role,
            sites=[SiteName(site) for site in body.sites],
            expires_at=body.expires_at,
        )
        response.headers["Cache-Control"] = "no-store"
        return CreatedTokenBody(**token_body(created.token).model_dump(), token=created.text)

    @router.get("/api/v1/tokens", summary="List access tokens, never their secrets")
    async def list_tokens(caller: Annotated[Caller, Depends(allowed("tokens.read"))]) -> TokensBody:
        return TokensBody(tokens=[token_body(token) for token in await gate.tokens.listed()])

    @router.get("/api/v1/tokens/self", summary="Who am I, and what may I do?")
    async def show_myself(caller: Annotated[Caller, Depends(allowed("tokens.self"))]) -> WhoAmIBody:
        return WhoAmIBody(name=caller.name, role=caller.role.value, sites=list(caller.sites), kind=caller.kind.value)

    @router.delete("/api/v1/tokens/{token}", summary="Revoke an access token, at once", responses={404: {}})
    async def revoke_token(
        caller: Annotated[Caller, Depends(allowed("tokens.revoke"))],
        token: Annotated[str, Path(max_length=200, description="Its id or its name.")],
    ) -> TokenBody:
        """Open streams of its holder end too."""
        revoked = await gate.tokens.revoke(caller, token)
        gate.end(revoked.id)
        return token_body(revoked)

    return router


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
