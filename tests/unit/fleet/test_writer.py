"""Files cut from a pattern are the very bytes that rendering each would give."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
import yaml

from homeport.catalog.deployment import parse_deployment
from homeport.catalog.description import parse_description
from homeport.core.update_values import merge_values
from homeport.fleet.central.resolve import DeployTarget, Resolved, default_name
from homeport.ports import AppRecord
from homeport.vocabulary import AppId, DeploymentId, NodeId, RolloutId, SiteName
from tests.support.running_central import MARGO

ID = DeploymentId("3952aa29-df29-4549-bc5f-111111111111")
SITES = ["home", "line-7", "7", "no", "null", "0-1", "2026-01-01", "1e3", "s-00001", "x--y", "true-north", "a-"]


def resolved() -> Resolved:
    text = MARGO.format(margo_id="demo-hello", name="hello", version="1.0.0").encode()
    description = parse_description(text, "margo.yaml", category="demo")
    app = description.app
    record = AppRecord(
        id=AppId("app"),
        category="demo",
        app_name="hello",
        version="1.0.0",
        margo_id=app.margo_id,
        name=app.name,
        vendor=app.vendor,
        description="",
        tags=(),
        descriptor=description.descriptor,
        source=text,
        repository="",
        commit=None,
        added_at=datetime(2026, 1, 1, tzinfo=UTC),
        added_by="local",
    )
    return Resolved(record, app, "hello", ())


@pytest.mark.parametrize("greeting", ["Hello", "place-of-the-site-c0ffee00", "c0ffee00-5eed-4000-8000-00decade0000"])
@pytest.mark.parametrize("nodes", [(), (NodeId("a"), NodeId("b"))])
def test_a_file_cut_from_a_pattern_equals_the_rendered_one(greeting: str, nodes: tuple[NodeId, ...]) -> None:
    one = resolved()
    values = merge_values(one.app, one.requested_for(DeployTarget(SiteName("any"), nodes)), None)
    values = replace(values, values={"greeting": greeting, "port": 18080})
    writer = one.writer()
    for name in map(SiteName, SITES):
        content = writer.render(DeployTarget(name), values, ID, RolloutId("r"), None)
        assert content == one.render(name, values, ID, RolloutId("r"))
        assert yaml.safe_load(content)["metadata"]["deviceId"] == name
        desired = writer.desired(name, values, ID, content)
        assert desired == parse_deployment(content, desired.path, name)


def test_an_apps_folder_name_is_bent_into_a_deployments_name() -> None:
    assert default_name("Hello_World.v2") == "hello-world-v2"
    assert default_name("---") == "app"
