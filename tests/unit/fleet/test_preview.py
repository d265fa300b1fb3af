"""Why a plan replaces a component, in words."""

import pytest

from homeport.core.model.deployment import ComponentSpec
from homeport.fleet.central.plans.preview import why_replaced
from homeport.vocabulary import ProfileType


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("1.0.0", "1.1.0", "revision 1.0.0 → 1.1.0"),
        ("0.0.0_81de12133dc5", "0.0.0_cb3ffdc16f67", "its files changed"),
        ("1.0.0_81de12133dc5", "1.1.0_cb3ffdc16f67", "revision 1.0.0_81de12133dc5 → 1.1.0_cb3ffdc16f67"),
    ],
)
def test_digests_of_imported_files_are_not_shown_to_a_person(before: str, after: str, why: str) -> None:
    old, new = (ComponentSpec("web", ProfileType.COMPOSE, "oci://a/web", revision) for revision in (before, after))
    assert why_replaced(old, new) == why
