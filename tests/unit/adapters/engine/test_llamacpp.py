"""What llama.cpp says of itself, as different versions say it."""

import pytest

from homeport.adapters.engine.llamacpp import read_props

USED = {"id": 1, "n_ctx": 1000, "is_processing": False, "id_task": 2, "n_prompt_tokens": 500}
UNUSED = {"id": 0, "n_ctx": 1000, "is_processing": False}
OLDER = {"id": 0, "n_ctx": 1000, "is_processing": False, "id_task": -1}


@pytest.mark.parametrize(
    ("slots", "ratio"),
    [
        ([USED], 0.5),
        ([UNUSED, USED], 0.25),
        ([UNUSED], 0.0),
        ([OLDER, USED], None),
        ([{**USED, "n_ctx": "many"}], None),
        ([], None),
        (None, None),
    ],
)
def test_the_cache_is_as_full_as_its_slots_say(slots: object, ratio: float | None) -> None:
    assert read_props({"/props": {"total_slots": 2}, "/slots": slots}).kv_usage_ratio == ratio
