"""What a node tells its site of each order when it connects."""

from homeport.core.model.instance import Failure
from homeport.core.model.order import Order, Result
from homeport.core.node.entry import accepted, ended
from homeport.vocabulary import Code, Generation, OrderKind
from tests.support.builders import NOW, a_desired, deployment_id


def test_a_removal_that_failed_is_not_done_for_it_has_to_be_ordered_again() -> None:
    order = Order(Generation(7), deployment_id(), OrderKind.REMOVE, None)
    failed = Result(
        deployment_id(), Generation(7), OrderKind.REMOVE, False, NOW, Failure(Code.REMOVE_FAILED, "busy"), exit_code=1
    )
    gone = Result(deployment_id(), Generation(7), OrderKind.REMOVE, True, NOW, deleted=True)
    entry = accepted(order, None)
    assert not ended(entry, failed, keeps_good=False).held.done
    assert ended(entry, gone, keeps_good=False).held.done


def test_a_release_that_failed_is_done_for_its_site_decides_what_comes_next() -> None:
    order = Order(Generation(7), deployment_id(), OrderKind.APPLY, a_desired().release)
    failed = Result(deployment_id(), Generation(7), OrderKind.APPLY, False, NOW, Failure(Code.EXITED, "exit 1"))
    assert ended(accepted(order, None), failed, keeps_good=False).held.done
