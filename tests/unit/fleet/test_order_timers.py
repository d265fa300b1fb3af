"""How long orders are out, and what becomes of the timer of an instance that is gone."""

from homeport.core.reconcile.instances import Instances
from homeport.fleet.site.orders.timers import OrderTimers
from homeport.vocabulary import State
from tests.support.builders import an_instance

OUT = an_instance(state=State.INSTALLING)


def test_an_order_is_timed_from_when_it_was_first_seen() -> None:
    timers, instances = OrderTimers(), Instances({OUT.key: OUT})
    assert timers.outstanding(instances, 10.0) == [OUT]
    assert timers.outstanding(instances, 14.0) == [OUT]
    assert timers.waited(OUT, 14.0) == 4.0


def test_the_timer_of_an_instance_that_is_gone_ends_with_it() -> None:
    timers, instances = OrderTimers(), Instances({OUT.key: OUT})
    timers.outstanding(instances, 10.0)
    del instances[OUT.key]  # As when its node says after a restore that it has removed it.
    assert timers.outstanding(instances, 11.0) == []
    assert timers.asked == {}


def test_the_timer_of_an_instance_that_came_to_rest_ends() -> None:
    timers, instances = OrderTimers(), Instances({OUT.key: OUT})
    timers.outstanding(instances, 10.0)
    instances[OUT.key] = an_instance(state=State.INSTALLED)
    assert timers.outstanding(instances, 11.0) == []
