"""`GET /api/v1/filter-values`: what a field with the filter language offers while a user types."""

from collections.abc import Sequence
from typing import Annotated, Final

from fastapi import Query

from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.core.values.filters import DEPLOYMENT_WORDS, LENGTH_MAX, WORDS, parse_filter
from homeport.errors import InvalidInput, Problem
from homeport.fleet.shared.answers.filter_values import Filtered, filter_values
from homeport.serving.bodies.body import Body
from homeport.serving.capability import Routes
from homeport.serving.middleware.callers import CallerOf
from homeport.serving.routes.read import FilterText, Reading
from homeport.serving.routing import Router

ACTIONS: Final[Actions] = {
    ("GET", "/api/v1/filter-values"): Action("filters.read", Level.VIEWER, Scope.SEEN, Audit.NONE)
}


class FilterValueBody(Body):
    value: str
    count: int
    """How many items of the list it would leave, with the rest of the filter."""


class FilterValuesBody(Body):
    values: Sequence[FilterValueBody]


def filter_value_routes(reading: Reading) -> Routes:
    router = Router(tags=["overview"])

    @router.get("/api/v1/filter-values", summary="The values of a word of the filter language, with counts")
    async def list_filter_values(
        caller: CallerOf,
        filtered: Annotated[
            Filtered, Query(alias="list", description="The list that is filtered.")
        ] = Filtered.DEPLOYMENTS,
        word: Annotated[str, Query(max_length=20, description="The word before the colon.")] = "site",
        text: Annotated[str, Query(max_length=LENGTH_MAX, description="What the value contains.")] = "",
        filtering: FilterText = None,
    ) -> FilterValuesBody:
        """At most ten, those that leave most first."""
        words = DEPLOYMENT_WORDS if filtered is Filtered.DEPLOYMENTS else WORDS
        if word not in words:
            message = f'"{word}" is not a word of this filter. Use {", ".join(words)}.'
            raise InvalidInput(problems=[Problem("word", message)])
        parts = parse_filter(filtering or "", words)
        window = reading.reachability.window(reading.clock.now())
        async with reading.of(caller).read() as reader:
            found = await filter_values(reader, filtered, word, text, parts=parts, window=window)
        return FilterValuesBody(values=[FilterValueBody(value=each.value, count=each.count) for each in found])

    return Routes(router, ACTIONS)
