"""What each key has used of models since this role was started, for `/metrics`. `homeport usage` has what was used
before, by day and model."""

from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from homeport.ports import Reader

KEYS_MAX: Final = 1_024
"""Beyond them they are counted together."""
OTHERS: Final = "other"
_FAMILIES: Final = (
    ("homeport_key_requests", "Tasks and requests of a key that have ended."),
    ("homeport_key_tokens_in", "Tokens of prompts of a key."),
    ("homeport_key_tokens_out", "Tokens that were generated for a key."),
)
Amounts = tuple[int, int, int]
"""Requests, tokens in, tokens out."""


class KeyUsage(Collector):
    def __init__(self) -> None:
        self._used: dict[str, Amounts] = {}
        """By the id of a token, or the name of a local user."""
        self._names: Mapping[str, str] = {}

    def used(self, key: str, *, tokens_in: int, tokens_out: int) -> None:
        if key not in self._used and len(self._used) >= KEYS_MAX:
            key = OTHERS
        self._used[key] = _plus(self._used.get(key), (1, tokens_in, tokens_out))

    async def look(self, reader: Reader) -> None:
        """Before each scrape: people know tokens by their names."""
        self._names = {each.id: each.name for each in await reader.tokens() if each.id in self._used}

    def collect(self) -> Iterable[Metric]:
        by_name: dict[str, Amounts] = {}
        for key, amounts in self._used.items():
            name = self._names.get(key, key)
            by_name[name] = _plus(by_name.get(name), amounts)
        for index, (name, text) in enumerate(_FAMILIES):
            family = CounterMetricFamily(name, text, labels=["key"])
            for key, amounts in by_name.items():
                family.add_metric([key], amounts[index])
            yield family


def _plus(one: Amounts | None, other: Amounts) -> Amounts:
    return other if one is None else (one[0] + other[0], one[1] + other[1], one[2] + other[2])
