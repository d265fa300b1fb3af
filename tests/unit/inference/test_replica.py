"""What is measured of a replica."""

import pytest

from homeport.adapters.engine.fake import FakeEngine
from homeport.core.inference.engines.handoff import Engine, Handoff, HandoffModel
from homeport.inference.pools.replica import Replica

TINY = Handoff(engine=Engine.LLAMACPP, url="http://127.0.0.1:8090", model=HandoffModel("tiny"))


@pytest.mark.parametrize(
    ("first_token_ms", "seconds", "tokens", "rate"),
    [
        (500.0, 2.5, 101, 50.0),
        (1999.999, 2.0, 100, 50.0),  # in one piece, at the end
        (2000.0, 2.0, 100, 50.0),
        (500.0, 2.5, 1, None),
        (0.0, 0.0, 7, None),
    ],
)
def test_tokens_that_come_together_are_measured_by_the_whole_time(
    first_token_ms: float, seconds: float, tokens: int, rate: float | None
) -> None:
    replica = Replica(TINY, FakeEngine())
    replica.measured(first_token_ms=first_token_ms, seconds=seconds, tokens=tokens)
    assert replica.tokens_per_second == (rate if rate is None else pytest.approx(rate))
