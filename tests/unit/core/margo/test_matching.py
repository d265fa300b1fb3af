"""Which device of a client a deployment is for."""

from datetime import UTC, datetime
from typing import Any

import pytest

from homeport.core.margo.matching import choose_device
from homeport.core.margo.records import MargoDevice
from homeport.errors import NotPlaceable
from homeport.vocabulary import SiteName

SITE = SiteName("line-7")


def device(device_id: str, *types: str) -> MargoDevice:
    properties: dict[str, Any] = {"id": device_id, **({"supportedDeploymentTypes": list(types)} if types else {})}
    return MargoDevice(SITE, device_id, properties, {}, datetime(2026, 3, 1, tzinfo=UTC))


DEVICES = [
    device("gw1"),
    device("gw1/c", "compose"),
    device("gw1/b", "compose"),
    device("gw1/a", "helm"),
    device("gw2"),
]


def chosen(wanted: str | None = None, before: str | None = None, *, type_: str = "compose") -> str | None:
    return choose_device(SITE, DEVICES, type_, None, wanted=wanted, before=before)


def test_the_wanted_one_then_the_one_that_has_it_then_the_first_that_fits() -> None:
    assert chosen() == "gw1/b"
    assert chosen(before="gw1/c") == "gw1/c"
    assert chosen("gw1/b", before="gw1/c") == "gw1/b"
    assert chosen(before="gw1/gone") == "gw1/b"


def test_a_gateway_may_be_left_the_choice_where_a_child_of_it_fits() -> None:
    assert chosen("gw1/*") == chosen(before="gw1/*") == "gw1/*"
    assert chosen(before="gw9/*") == "gw1/b"


# fmt: off
REFUSED = [
    ("gw1",    "hosts no workloads"),
    ("gw1/a",  "supports helm, not compose"),
    ("gw1/x",  "was not reported by this client"),
    ("gw2/*",  "has no child devices"),
    ("gw9/*",  "names a gateway that was not reported"),
]
# fmt: on


@pytest.mark.parametrize(("wanted", "why"), REFUSED)
def test_one_that_does_not_fit_is_refused_with_the_reason(wanted: str, why: str) -> None:
    with pytest.raises(NotPlaceable, match=why) as raised:
        chosen(wanted)
    assert "gw1/b, gw1/c" in str(raised.value.hint)


def test_an_update_that_its_device_cannot_take_moves_nowhere_by_itself() -> None:
    with pytest.raises(NotPlaceable, match=r"gw1/a of .* supports helm, not compose") as raised:
        chosen(before="gw1/a")
    assert "Choose one with --device" in str(raised.value.hint)
    with pytest.raises(NotPlaceable, match=r"gw1/\* .* has no child device that fits"):
        chosen("gw1/*", type_="custom")


def test_a_client_that_is_one_device_is_chosen_by_its_own_name_alone() -> None:
    for devices in ([], [device("line-7", "compose")]):
        assert choose_device(SITE, devices, "compose", None) is None
        assert choose_device(SITE, devices, "compose", None, wanted="line-7") is None
        with pytest.raises(NotPlaceable, match="has reported no device"):
            choose_device(SITE, devices, "compose", None, wanted="gw1/a")


def test_capacity_and_rules_of_a_profile_decide_too_and_each_device_says_what_it_lacks() -> None:
    def sized(device_id: str, memory: str, **labels: Any) -> MargoDevice:
        properties = {"id": device_id, "supportedDeploymentTypes": ["compose"], "memory": memory}
        return MargoDevice(SITE, device_id, properties, labels, datetime(2026, 3, 1, tzinfo=UTC))

    small, other, right = sized("a", "1Gi", line=7), sized("b", "8Gi", line=8), sized("c", "8Gi", line=7)
    selector = {"matchExpressions": [{"key": "line", "operator": "In", "values": [7]}]}
    constraints = {
        "capacityRequirements": {"memory": "2Gi"},
        "eligibilityRules": [{"labelSelector": selector}],
    }
    assert choose_device(SITE, [small, other, right], "compose", constraints) == "c"
    assert choose_device(SITE, [small, other, right], "compose", None) == "a"
    for wanted, why in (("a", "needs 2Gi of memory, has 1Gi"), ("b", "does not meet the rule label line In 7")):
        with pytest.raises(NotPlaceable, match=f"{wanted} .* {why}"):
            choose_device(SITE, [small, other, right], "compose", constraints, wanted=wanted)
    with pytest.raises(NotPlaceable, match=r"No device .* a needs 2Gi of memory, has 1Gi; b does not meet the rule"):
        choose_device(SITE, [small, other], "compose", constraints)
