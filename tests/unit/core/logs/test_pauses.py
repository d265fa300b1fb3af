"""What a log line waits for by design on its way from a container to whoever follows it at central."""

from homeport.adapters.runtime.programs.follow_file import TOGETHER_SECONDS
from homeport.logs import storing
from homeport.logs.node import spool
from homeport.logs.serving import tail
from homeport.logs.site import forwarding

VISIBLE_SECONDS = 2.0


def test_the_pauses_on_the_way_of_a_line_leave_most_of_two_seconds_to_the_machine() -> None:
    node = TOGETHER_SECONDS + spool.FLUSH_SECONDS
    site = storing.PAUSE_SECONDS + forwarding.PAUSE_SECONDS
    central = storing.PAUSE_SECONDS + tail.PAUSE_SECONDS
    assert node + site + central <= VISIBLE_SECONDS / 4
