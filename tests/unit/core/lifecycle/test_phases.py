"""Every state in the coarser words of the original orchestrator."""

import pytest

from homeport.core.lifecycle.phases import Phase, phase_of
from homeport.vocabulary import State


@pytest.mark.parametrize("state", list(State))
def test_every_state_has_a_phase(state: State) -> None:
    assert phase_of(state, accepted=True) in Phase


def test_a_pending_deployment_that_its_site_knows_is_in_progress() -> None:
    assert phase_of(State.PENDING, accepted=False) is Phase.PENDING
    assert phase_of(State.PENDING, accepted=True) is Phase.IN_PROGRESS
