"""What a site keeps about each instance beside its state, one row of its database for each: a change writes the rows
that it changes, however many instances there are."""

import json
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from homeport.core.reconcile.instances import Key
from homeport.ports import Transaction

SECRETS_GIVEN: Final = "secrets_given"
"""The version of each secret that was sent with an instance's newest order."""
SECONDS_SPENT: Final = "seconds_spent"
"""How long an instance's change took before its outstanding order."""
TRACES: Final = "traces"
"""Open spans: of an order, and under no node those of a deployment."""

Value = TypeVar("Value")


async def keep_changed(
    tx: Transaction,
    name: str,
    before: Mapping[Key, Value],
    after: Mapping[Key, Value],
    dump: Callable[[Value], str] = json.dumps,
) -> None:
    await tx.put_instance_values(name, {key: dump(value) for key, value in after.items() if before.get(key) != value})
    await tx.drop_instance_values(name, sorted(before.keys() - after.keys()))


def dump_seconds(spent: float) -> str:
    return str(round(spent, 3))


def load_secrets(text: str) -> dict[str, int]:
    return {str(name): int(version) for name, version in json.loads(text).items()}
