"""Each kind of work belongs to one capability."""

import pytest

from homeport.capability.kinds import by_kind


def test_each_kind_has_one_that_deals_with_it() -> None:
    assert by_kind([{"deployment": 1}, {}, {"job": 2}]) == {"deployment": 1, "job": 2}


def test_a_kind_that_two_deal_with_is_refused() -> None:
    with pytest.raises(ValueError, match="the kind job"):
        by_kind([{"job": 1}, {"job": 2}])
