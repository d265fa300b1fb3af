"""What data volumes are called, and how a commit says that they go."""

import pytest

from homeport.core.data import data_trailer, parse_volume, removes_data, volume_prefix
from homeport.vocabulary import DeploymentId, NodeId

KEY, OTHER = (
    DeploymentId("6f9619ff-8b86-4d01-b42d-00c04fc964ff"),
    DeploymentId("11111111-1111-4111-8111-111111111111"),
)


def test_no_two_components_share_the_beginning_of_their_volumes() -> None:
    whose = [("shop", "web", "a"), ("shop", "web", "b"), ("shop", "web-db", "a"), ("shop-web", "db", "a")]
    names = [volume_prefix(name, component, NodeId(node)) for name, component, node in whose]
    assert not [one for one in names for other in names if one is not other and other.startswith(one)]


def test_a_commit_removes_the_data_of_the_deployment_that_it_names_and_of_no_other() -> None:
    message = f"delete shop from home\n\n{data_trailer(KEY)}\nTraceparent: 00-x"
    assert removes_data(message, KEY)
    assert not removes_data(message, OTHER)
    assert not removes_data(f"delete shop\n\nkeeps its data, unlike Remove-Data: {KEY}", KEY)


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        (volume_prefix("shop", "web", NodeId("n1")) + "data", ("shop-web", "data")),
        (volume_prefix("my-shop", "data_base", NodeId("n1")) + "a_b", ("my-shop-data_base", "a_b")),
        ("hp-fb18888b971c-shop-cd3f_data", None),  # called after the id of a deployment, as once
        ("somebody-elses", None),
        ("hp-", None),
    ],
)
def test_the_owner_of_a_volume_is_read_from_its_name(name: str, parsed: tuple[str, str] | None) -> None:
    assert parse_volume(name) == parsed
