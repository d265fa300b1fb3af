"""What is measured of a replica."""

from dataclasses import replace

import pytest

from homeport.adapters.engine.fake import FakeEngine
from homeport.core.inference.engines.handoff import EngineName, Handoff, HandoffModel, Loading
from homeport.inference.pools.preparation import preparation
from homeport.inference.pools.replica import Replica
from homeport.ports.engine import Props

TINY = Handoff(engine=EngineName.LLAMACPP, url="http://127.0.0.1:8090", model=HandoffModel("tiny"))


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


def test_the_step_before_a_task_says_what_was_measured_and_nothing_else() -> None:
    unloaded = replace(TINY, loading=Loading.UNLOADED, idle_seconds=60)
    replica = Replica(unloaded, FakeEngine())
    (step,) = preparation("default", [replica])
    assert (step["kind"], step["status"]) == ("pool_warmup", "pending")
    assert not {"estimated_ms", "bytes_total"} & step.keys(), "nobody knows them"
    replica.change(replace(unloaded, loading=Loading.LOADING), now=10.0)
    replica.change(replace(unloaded, loading=Loading.LOADED), now=11.0)
    replica.loaded(now=12.5)
    sized = replace(unloaded, loading=Loading.LOADING, model=HandoffModel("tiny", size_bytes=700))
    replica.change(sized, now=20.0)
    (step,) = preparation("default", [replica])
    assert (step["status"], step["estimated_ms"], step["bytes_total"]) == ("running", 2500, 700)


@pytest.mark.parametrize(
    ("names", "asked", "own"),
    [
        ((), "tiny", "tiny"),
        (("/models/tiny.gguf",), "tiny", "/models/tiny.gguf"),
        (("mistral:latest", "tiny:latest"), "tiny", "tiny:latest"),
        (("mistral:latest", "tiny:latest"), "mistral:latest", "mistral:latest"),
        (("mistral:latest", "gemma:latest"), "tiny", "tiny"),
    ],
)
def test_an_engine_of_several_models_is_never_asked_for_another(names: tuple[str, ...], asked: str, own: str) -> None:
    """It was once asked for the first that it names."""
    replica = Replica(TINY, FakeEngine())
    replica.learn(Props(models=names))
    assert replica.own_name_of(asked) == own


def test_a_slot_keeps_what_it_computed_last() -> None:
    replica = Replica(replace(TINY, model=HandoffModel("tiny", kv_token_bytes=512), slots_total=2), FakeEngine())
    for session in ("a", "b", "c"):
        replica.occupied(("ann", session))
        replica.kept(("ann", session), 10)
    assert dict(replica.caches) == {("ann", "b"): 5120, ("ann", "c"): 5120}
    replica.change(replace(replica.handoff, loading=Loading.UNLOADED), now=1.0)
    assert not replica.caches
