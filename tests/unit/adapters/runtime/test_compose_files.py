"""What is read from a compose file, and what is written beside it."""

from pathlib import Path

import pytest
import yaml

from homeport.adapters.runtime.compose_files import (
    Service,
    archive_folder,
    project_name,
    read_services,
    unpack,
    write_override,
)
from homeport.core.model.deployment import ComponentSpec
from homeport.errors import InvalidInput
from homeport.ports import Workload
from homeport.vocabulary import DeploymentId, NodeId, ProfileType
from tests.support.engines import compose_artifact

ID = DeploymentId("0b9c2c1e-6f1a-4f6e-9a53-0d6a1f3f2b11")


def spec(**environment: str) -> ComponentSpec:
    return ComponentSpec("web", ProfileType.COMPOSE, "oci://r/web", "1.0.0", environment)


def project(folder: Path, content: str) -> Path:
    (folder / "compose.yaml").write_text(content)
    return folder


def test_a_project_is_named_for_deployment_component_and_node() -> None:
    name = project_name(ID, "Web.App", NodeId("a"))
    assert name.startswith("hp-0b9c2c1e6f1a-web-app-")
    assert name != project_name(ID, "Web.App", NodeId("b"))


def test_images_are_read_as_the_tool_will_see_them(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("TAG=1\nNAME=from-file\n")
    content = """
services:
  app: {image: "r/${NAME}:${TAG}"}
  built: {build: ., image: mine}
  given: {image: local, pull_policy: never}
  many: {image: "r/many", deploy: {replicas: 3}}
  debug: {image: r/debug, profiles: [debug]}
"""
    assert read_services(project(tmp_path, content), spec(NAME="given")) == (
        Service("app", "r/given:1", 1),
        Service("built", None, 1),
        Service("given", None, 1),
        Service("many", "r/many", 3),
    )


def test_a_service_whose_end_others_wait_for_is_marked_as_one_that_ends(tmp_path: Path) -> None:
    content = """
services:
  hook: {image: r/hook}
  cache: {image: r/cache}
  app:
    image: r/app
    depends_on: {hook: {condition: service_completed_successfully}, cache: {condition: service_started}}
  other: {image: r/other, depends_on: [cache]}
"""
    services = read_services(project(tmp_path, content), spec())
    assert [service.name for service in services if service.ends] == ["hook"]
    workload = Workload(ID, spec(), tmp_path)
    override = yaml.safe_load(write_override(tmp_path, workload, NodeId("n"), services).read_text())
    marked = [name for name, service in override["services"].items() if "homeport.ends" in service["labels"]]
    assert marked == ["hook"]


@pytest.mark.parametrize("content", ["", "services: {}", "services: [", "- a", "services: nothing"])
def test_a_file_without_services_is_refused_with_a_sentence(tmp_path: Path, content: str) -> None:
    with pytest.raises(InvalidInput, match=r"compose\.yaml"):
        read_services(project(tmp_path, content), spec())


def test_the_override_marks_every_service_and_keeps_values_literal(tmp_path: Path) -> None:
    workload = Workload(ID, spec(PRICE="5 $USD"), tmp_path)
    services = (Service("app", "a", 1), Service("cache", "b", 2))
    path = write_override(project(tmp_path, "services: {app: {}, cache: {}}"), workload, NodeId("n"), services)
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
