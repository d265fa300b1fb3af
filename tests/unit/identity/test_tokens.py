"""A token that another process has just created is known at once, and guessing causes few reads."""

import pytest

from homeport.adapters.system import SystemClock
from homeport.core.model.caller import INTERNAL, Role
from homeport.identity.tokens import Tokens, WrongToken
from tests.simulation.store import Disk, MemoryStore

pytestmark = pytest.mark.anyio


async def test_a_token_of_another_central_is_known_however_lately_this_one_has_looked() -> None:
    disk, clock = Disk(), SystemClock()
    one, other = Tokens(MemoryStore(disk), clock), Tokens(MemoryStore(disk), clock)
    before = await one.create(INTERNAL, name="ada", role=Role.VIEWER)
    for number in range(3):
        assert (await other.check(before.text)).name == "ada", "so that it has just read"
        made = await one.create(INTERNAL, name=f"ben-{number}", role=Role.VIEWER)
        assert (await other.check(made.text)).name == f"ben-{number}"
    with pytest.raises(WrongToken):
        await other.check(before.text[:-1] + ("0" if before.text[-1] != "0" else "1"))
