"""What is read from a compose file, and what is written beside it."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from homeport.adapters.runtime.compose.files import (
    Service,
    archive_folder,
    configuring,
    project_name,
    unpack,
    volume_name,
    write_override,
)
from homeport.adapters.runtime.docker_api.client import Json, ListedContainer
from homeport.adapters.runtime.health.observations import failed_or_all, shown_name
from homeport.core.model.deployment import ComponentSpec
from homeport.errors import InvalidInput
from homeport.ports import Workload
from homeport.vocabulary import DeploymentId, NodeId, ProfileType
from tests.support.engines import compose_artifact

ID = DeploymentId("0b9c2c1e-6f1a-4f6e-9a53-0d6a1f3f2b11")


def spec(**environment: str) -> ComponentSpec:
    return ComponentSpec("web", ProfileType.COMPOSE, "oci://r/web", "1.0.0", environment)


def test_a_project_is_named_for_deployment_component_and_node() -> None:
    name = project_name(ID, "Web.App", NodeId("a"))
    assert name.startswith("hp-0b9c2c1e6f1a-web-app-")
    assert name != project_name(ID, "Web.App", NodeId("b"))


def test_a_volume_is_named_for_the_deployments_name_component_and_node(tmp_path: Path) -> None:
    def name(deployment: str, component: str, node: str) -> str:
        workload = Workload(ID, replace(spec(), name=component), tmp_path, deployment)
        return volume_name(workload, NodeId(node), "data")

    names = {name("a-b", "c", "n"), name("a", "b-c", "n"), name("a-b", "c", "m")}
    assert len(names) == 3
    assert all(each.startswith("hp-a-b-c-") and each.endswith("_data") for each in names)
    written = write_override(tmp_path, Workload(ID, spec(), tmp_path), NodeId("n"), (), volumes={"data": "hp-x_data"})
    assert yaml.safe_load(written.read_text())["volumes"] == {"data": {"name": "hp-x_data"}}


def test_the_override_marks_every_service_and_keeps_values_literal(tmp_path: Path) -> None:
    workload = Workload(ID, spec(PRICE="5 $USD"), tmp_path)
    services = (Service("app", "a", 1), Service("cache", "b", 2))
    path = write_override(tmp_path, workload, NodeId("n"), services)
    written = yaml.safe_load(path.read_text())["services"]
    assert written["app"] == written["cache"]
    assert written["app"]["environment"] == {"PRICE": "5 $$USD"}
    assert written["app"]["labels"] == {
        "homeport.deployment": ID,
        "homeport.component": "web",
        "homeport.digest": workload.spec.digest,
        "homeport.node": "n",
        "homeport.services": "app=1,cache=2",
    }


def test_variables_of_the_machine_are_for_every_service_that_has_none_of_that_name(tmp_path: Path) -> None:
    own = Service("own", "a", 1, variables=frozenset({"HTTP_OTEL_EXPORTER_OTLP_ENDPOINT"}))
    services = (Service("app", "a", 1), own)
    variables = {"HTTP_OTEL_EXPORTER_OTLP_ENDPOINT": "http://10.0.0.1:4318", "OTHER": "1"}
    workload = Workload(ID, spec(OTHER="2"), tmp_path)
    path = write_override(tmp_path, workload, NodeId("n"), services, variables=variables)
    written = yaml.safe_load(path.read_text())["services"]
    assert written["app"]["environment"] == {**variables, "OTHER": "2"}
    assert written["own"]["environment"] == {"OTHER": "2"}


def test_a_service_that_ends_is_marked_and_the_version_is_that_of_the_file(tmp_path: Path) -> None:
    services = (Service("hook", "h", 1, ends=True), Service("app", "a", 1))
    path = write_override(tmp_path, Workload(ID, spec(), tmp_path), NodeId("n"), services, version="2.4")
    written = yaml.safe_load(path.read_text())
    marked = [name for name, service in written["services"].items() if "homeport.ends" in service["labels"]]
    assert marked == ["hook"]
    assert written["version"] == "2.4"


def test_what_is_configured_is_counted_and_nothing_is_left_out() -> None:
    assert configuring("shop", ("variable", 1), ("secret file", 0)) == "configuring shop: 1 variable"
    assert configuring("shop", ("variable", 2), ("secret file", 1)) == "configuring shop: 2 variables, 1 secret file"
    assert configuring("shop", ("variable", 0)) == "configuring shop"


def test_only_the_output_of_what_failed_is_shown_and_else_all_of_it() -> None:
    found: dict[str, Json | None] = {
        "a-job": {"State": {"ExitCode": 3}},
        "b-done": {"State": {"ExitCode": 0}},
        "c-gone": None,
        "d": {"State": {"Health": {"Status": "unhealthy"}}},
        "e": {"State": {"Health": {"Status": "healthy"}}},
    }
    assert failed_or_all(found) == [found["a-job"], found["d"]]
    del found["a-job"], found["d"]
    assert failed_or_all(found) == [found["b-done"], found["e"]]


def test_an_archive_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = archive_folder(Workload(ID, spec(), tmp_path / "web"))
    with pytest.raises(InvalidInput):
        unpack(b"no archive", folder)
    assert not list(tmp_path.glob("web/*"))
    unpack(compose_artifact("services: {app: {image: a}}").layers[0].content, folder)
    assert [path.name for path in folder.iterdir()] == ["compose.yaml"]


def test_only_repository_and_revision_decide_where_an_archive_stands(tmp_path: Path) -> None:
    one, other = (archive_folder(Workload(ID, spec(A=value), tmp_path)) for value in ("1", "2"))
    assert one == other


@pytest.mark.parametrize(
    ("labels", "name"),
    [
        ({"homeport.component": "shop", "com.docker.compose.service": "db"}, "shop/db"),
        ({"homeport.component": "web", "com.docker.compose.service": "web"}, "web"),
        ({"homeport.component": "clock"}, "clock"),
        ({}, "hp-1234-clock-8413"),
    ],
)
def test_a_container_is_shown_by_the_names_that_its_author_gave(labels: dict[str, str], name: str) -> None:
    container = ListedContainer("1", "hp-1234-clock-8413", "a:1", running=True, labels=labels)
    assert shown_name(container) == name
