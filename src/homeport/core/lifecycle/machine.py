"""A state machine is a table. This module steps any such table and has no knowledge of a particular one.

Every (state, event) has one of three verdicts: a row gives the next state; a late event from a site that was
offline is *stale*, recorded and without effect; anything else is illegal, raises, and changes nothing.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Generic, TypeVar

from homeport.errors import IllegalTransition
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import Actor

S = TypeVar("S", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Row(Generic[S, E]):
    while_in: S
    on: E
    becomes: S
    by: frozenset[Actor]


@dataclass(frozen=True, slots=True)
class Stepped(Generic[S]):
    state: S


@dataclass(frozen=True, slots=True)
class Stale(Generic[S]):
    """A late event: the state stays unchanged."""

    state: S


class Machine(Generic[S, E]):
    def __init__(self, *, start: S, rows: Iterable[Row[S, E]], stale: Iterable[tuple[S, E]]) -> None:
        self.start = start
        self.rows = tuple(rows)
        self.stale = frozenset(stale)
        by_pair = {(row.while_in, row.on): row for row in self.rows}
        assert len(by_pair) == len(self.rows), "two rows for one (state, event)"
        assert not self.stale & by_pair.keys(), "a pair is both a row and stale"
        self._by_pair: Mapping[tuple[S, E], Row[S, E]] = MappingProxyType(by_pair)

    def after(self, event: E) -> S:
        """The state after `event`, for who does not know the one before it."""
        (state,) = {row.becomes for row in self.rows if row.on == event}
        return state

    def step(self, state: S, event: E, actor: Actor) -> Stepped[S] | Stale[S]:
        """The state after `event` from `actor`; raises IllegalTransition where the table has no entry."""
        row = self._by_pair.get((state, event))
        if row is not None and actor in row.by:
            return Stepped(row.becomes)
        if (state, event) in self.stale:
            return Stale(state)
        if row is not None:
            raise IllegalTransition(f"{event} while {state} is not for a {actor} to say")
        raise IllegalTransition(f"{event} means nothing while {state}")
