"""Access tokens: creation, listing, revocation and authentication.

Every request is authenticated, so the few tokens of a fleet are cached in memory and read again at most once a
second; a wrong token costs one look-up and one hash. Only hashes are stored anywhere.
"""

import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

import anyio

from homeport.core.identity.joining import API_PREFIX, ID_BYTES, SECRET_BYTES_MIN, new_token, same, split
from homeport.core.model.access import ApiToken
from homeport.core.model.caller import Caller, CallerKind, Role
from homeport.errors import Conflict, InvalidInput, NotFound, Problem, TransientError, Unauthenticated
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import TOKENS, Clock, Cut, Page, Store, TokenFilter, Transaction
from homeport.vocabulary import SiteName

FRESH_SECONDS: Final = 1.0
"""Maximum age of the cache: how long another process's revocation may go unnoticed."""
UNKNOWN_SECONDS: Final = 0.05
"""Between two reads for tokens that are not in the cache, so that guessing does not cause a read each time. Whoever
comes in between waits for the next one."""
USED_EVERY: Final = timedelta(seconds=60)
"""`last_used_at` shows which tokens are unused; that needs no finer resolution."""
NAME_LENGTH_MAX: Final = 100
TOKENS_MAX: Final = 10_000

log = get_log("homeport.access")


@dataclass(frozen=True, slots=True)
class Created:
    token: ApiToken
    text: str
    """Shown once."""


class WrongToken(Unauthenticated):
    """The access token is not valid."""

    def __init__(self, message: str, *, token_id: str = "", name: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.token_id = token_id
        """The id in the token, where such a token exists."""
        self.name = name
        """Whose token it was, where the secret was right but the token is revoked or has expired."""


class Tokens:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
        on_changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_changed` notifies other processes that a token was created or revoked here."""
        self._on_changed = on_changed
        self._store = store
        self._clock = clock
        self._random_bytes = random_bytes
        self._known: Mapping[str, ApiToken] = {}
        self._checked: dict[bytes, ApiToken] = {}
        """Those of `_known` whose secret was right, by a digest of the whole text."""
        self._noting: set[str] = set()
        self._read_at: float | None = None
        self._reading = anyio.Lock()

    async def create(
        self,
        caller: Caller,
        *,
        name: str,
        role: Role,
        sites: Sequence[SiteName] = (),
        expires_at: datetime | None = None,
    ) -> Created:
        now = self._clock.now()
        _check(name, expires_at, now)
        new = new_token(API_PREFIX, self._random_bytes(ID_BYTES), self._random_bytes(SECRET_BYTES_MIN))
        token = ApiToken(
            id=new.id,
            name=name,
            role=role,
            sites=tuple(sorted(set(sites))),
            hash=new.hash,
            created_at=now,
            created_by=caller.name,
            expires_at=expires_at,
        )

        async def add(tx: Transaction) -> None:
            everything = await tx.tokens()
            if any(other.name == name and is_active(other, now) for other in everything):
                raise Conflict(
                    f'There is a token named "{name}" already.', hint="Choose another name, or revoke that one first."
                )
            if len(everything) >= TOKENS_MAX:
                raise Conflict(f"There are {TOKENS_MAX} tokens already, and that is the limit.")
            await tx.put_token(token)

        await self._store.write(add)
        await self.forget()
        self._on_changed()
        log.info("access token created", token=token.id, name=name, role=role.value, by=caller.name)
        return Created(token, new.text)

    async def page(self, cut: Cut) -> Page[ApiToken]:
        async with self._store.read() as reader:
            return await reader.page(TOKENS, TokenFilter(), cut)

    async def listed(self) -> Sequence[ApiToken]:
        async with self._store.read() as reader:
            return await reader.tokens()

    async def revoke(self, caller: Caller, reference: str) -> ApiToken:
        """By id, or by the name of a valid one. It is refused from the moment that this returns."""
        now = self._clock.now()

        async def end(tx: Transaction) -> ApiToken:
            token = _find(await tx.tokens(), reference, now)
            if token.revoked_at is None:
                token = replace(token, revoked_at=now)
                await tx.put_token(token)
            return token

        revoked = await self._store.write(end)
        await self.forget()
        self._on_changed()
        log.info("access token revoked", token=revoked.id, name=revoked.name, by=caller.name)
        return revoked

    async def check(self, text: str, *, address: str = "") -> Caller:
        """Authenticates a token. Raises WrongToken, without revealing whether the token or only its secret is
        wrong."""
        mark, now = _mark(text), self._clock.now()
        token = self._recently_checked(mark, now)
        if token is None:
            token = await self._verified(text, now)
            if len(self._checked) < TOKENS_MAX:
                self._checked[mark] = token
        if _is_use_unknown(token, now):
            await self._note_use(token.id, now)
        return _caller(token, address)

    def recognize(self, text: str, *, address: str = "") -> Caller | None:
        """The same for a token that was checked a moment ago; None where the database has to be asked."""
        now = self._clock.now()
        token = self._recently_checked(_mark(text), now)
        return None if token is None or _is_use_unknown(token, now) else _caller(token, address)

    def _recently_checked(self, mark: bytes, now: datetime) -> ApiToken | None:
        token = None if self._is_older_than(FRESH_SECONDS) else self._checked.get(mark)
        return token if token is not None and is_active(token, now) else None

    async def _verified(self, text: str, now: datetime) -> ApiToken:
        try:
            token_id, secret_hash = split(text, API_PREFIX)
        except InvalidInput as error:
            raise WrongToken("The access token is not valid.", hint=error.hint) from None
        token = (await self._fresh()).get(token_id)
        if token is None:
            # Another process may have created it a moment ago.
            token = (await self._read_since(self._clock.monotonic())).get(token_id)
        # Compared in any case, so that timing does not reveal whether an id exists.
        matches = same(token.hash if token is not None else "0" * 64, secret_hash)
        if token is None or not matches:
            raise WrongToken(
                "The access token is not valid.",
                token_id=token.id if token is not None else "",
                hint="Log in again with a token that an administrator gave you:  homeport login URL",
            )
        _refuse_ended(token, now)
        return token

    async def is_good(self, token_id: str) -> bool:
        """Whether a token that was checked before is still valid."""
        token = (await self._fresh()).get(token_id)
        return token is not None and is_active(token, self._clock.now())

    async def has_admin(self) -> bool:
        """Whether an administrator's token exists, so that remote administration is possible."""
        known = await self._fresh()
        now = self._clock.now()
        return any(token.role is Role.ADMIN and not token.sites and is_active(token, now) for token in known.values())

    async def _fresh(self, age_max: float = FRESH_SECONDS) -> Mapping[str, ApiToken]:
        if self._is_older_than(age_max):
            async with self._reading:
                if self._is_older_than(age_max):
                    began = self._clock.monotonic()
                    async with self._store.read() as reader:
                        self._known = {token.id: token for token in await reader.tokens()}
                    self._checked = {}
                    self._read_at = began
        return self._known

    async def _read_since(self, moment: float) -> Mapping[str, ApiToken]:
        """What a read found that began after the moment."""
        while (read_at := self._read_at) is None or read_at < moment:
            if read_at is not None:
                await anyio.sleep(max(0.0, read_at + UNKNOWN_SECONDS - self._clock.monotonic()))
            await self._fresh(UNKNOWN_SECONDS)
        return self._known

    def _is_older_than(self, seconds: float) -> bool:
        return self._read_at is None or self._clock.monotonic() - self._read_at >= seconds

    async def forget(self) -> None:
        """The next check reads again. A read under way began before the change, so it must end first."""
        async with self._reading:
            self._read_at = None

    async def _note_use(self, token_id: str, now: datetime) -> None:
        """Once for all requests that come at the same moment."""
        if token_id not in self._noting:
            self._noting.add(token_id)
            try:
                await self._used(token_id, now)
            finally:
                self._noting.discard(token_id)

    async def _used(self, token_id: str, now: datetime) -> None:
        async def note(tx: Transaction) -> ApiToken | None:
            # Read again here: the copy in memory must not undo a revocation.
            token = await tx.token(token_id)
            if token is not None:
                token = replace(token, last_used_at=now)
                await tx.put_token(token)
            return token

        try:
            noted = await self._store.write(note)
        except TransientError as error:
            log.warning("access token use not recorded", token=token_id, why=str(error))
            return
        if noted is not None:
            await self.forget()


def _mark(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _is_use_unknown(token: ApiToken, now: datetime) -> bool:
    return token.last_used_at is None or now - token.last_used_at >= USED_EVERY


def _caller(token: ApiToken, address: str) -> Caller:
    return Caller(token.name, token.role, address, token.sites, CallerKind.TOKEN, token.id)


def is_active(token: ApiToken, now: datetime) -> bool:
    return token.revoked_at is None and (token.expires_at is None or now < token.expires_at)


def _refuse_ended(token: ApiToken, now: datetime) -> None:
    """Only the holder of the right secret learns that the token was revoked or has expired."""
    hint = "Log in again with a token that an administrator gave you:  homeport login URL"
    if token.revoked_at is not None:
        raise WrongToken(
            f'The access token "{token.name}" was revoked on {token.revoked_at:%Y-%m-%d %H:%M} UTC.',
            token_id=token.id,
            name=token.name,
            hint=hint,
        )
    if token.expires_at is not None and now >= token.expires_at:
        raise WrongToken(
            f'The access token "{token.name}" expired on {token.expires_at:%Y-%m-%d %H:%M} UTC.',
            token_id=token.id,
            name=token.name,
            hint=hint,
        )


def _find(everything: Sequence[ApiToken], reference: str, now: datetime) -> ApiToken:
    for token in everything:
        if token.id == reference:
            return token
    for token in everything:
        if token.name == reference and is_active(token, now):
            return token
    raise NotFound(f'There is no token "{reference}".', hint="List them:  homeport tokens list")


def _check(name: str, expires_at: datetime | None, now: datetime) -> None:
    problems = []
    if not 1 <= len(name) <= NAME_LENGTH_MAX or not name.isprintable() or name.strip() != name:
        problems.append(Problem("name", f"must be 1 to {NAME_LENGTH_MAX} printable characters"))
    if expires_at is not None and expires_at.tzinfo is None:
        problems.append(Problem("expires_at", "needs a time zone, such as 2030-01-01T00:00:00Z"))
    elif expires_at is not None and expires_at <= now:
        problems.append(Problem("expires_at", "is in the past"))
    if problems:
        raise InvalidInput(problems=problems)
