"""What of a compose file becomes what, and what stands against it: snippets as people write them."""

from typing import Any

import pytest

from homeport.content.importing.compose import Judged, host_paths, judge, leads_out, needed
from homeport.content.importing.compose_files import ComposeFile, mistakes, read_compose
from homeport.content.importing.edits import CONFIGS_FOLDER, edited
from homeport.content.importing.parameters import Offered
from homeport.errors import InvalidInput


def a_file(text: str) -> ComposeFile:
    return read_compose(text.encode(), "compose.yaml")


def a_service(text: str, rest: str = "") -> ComposeFile:
    lines = "\n".join(f"    {line}" for line in text.splitlines())
    return a_file(f"services:\n  web:\n    image: nginx\n{lines}\n{rest}")


VALID = {
    "ports, short and long": 'ports: ["80", "8080:80", {target: 80, published: "8081", protocol: tcp, mode: host}]',
    "environment as a list": "environment: [A=1, B]",
    "environment as a mapping": "environment: {A: 1, B: null}",
    "env_file": "env_file: [a.env, {path: b.env, required: false}]",
    "a health check": "healthcheck: {test: [CMD, true], interval: 5s, retries: 3, start_period: 1s}",
    "a disabled health check": "healthcheck: {disable: true}",
    "mounts, long": "volumes: [{type: bind, source: ./a, target: /a, read_only: true, bind: {propagation: shared}}]",
    "limits": 'deploy: {resources: {limits: {cpus: "0.5", memory: 64M}}, replicas: 2}',
    "logging and restart": "logging: {driver: json-file}\nrestart: unless-stopped",
    "networks with aliases": "networks: {default: {aliases: [www]}}",
    "extensions": "x-mine: {anything: goes}",
    "profiles": "profiles: [dev]",
    "security": "read_only: true\ncap_drop: [ALL]\nsecurity_opt: [no-new-privileges:true]\ntmpfs: /tmp",
    "secrets and configs": "secrets: [a, {source: b, target: c}]\nconfigs: [d]",
    "build in full": "build: {context: ., dockerfile: Containerfile, args: {A: 1}, target: prod}",
    "newer keys": "annotations: {a: b}\nattach: false\npull_policy: always\nlabel_file: labels\ngpus: all",
}


@pytest.mark.parametrize("text", VALID.values(), ids=VALID)
def test_what_the_specification_has_is_no_mistake(text: str) -> None:
    assert list(mistakes(a_service(text))) == []


MISTAKES = {
    "imge: nginx": ("services.web.imge", 'is not a key of a service. Did you mean "image"?'),
    "healthcheck: {tests: [CMD, true]}": ("services.web.healthcheck.tests", 'of healthcheck. Did you mean "test"?'),
    "ports: [{targt: 80}]": ("services.web.ports[0].targt", 'of ports. Did you mean "target"?'),
    "depends_on: [dbb]": ("services.web.depends_on[0]", 'there is no service "dbb". Did you mean "db"?'),
    "depends_on: {db: {condition: service_health}}": (
        "services.web.depends_on.db.condition",
        'Did you mean "service_healthy"?',
    ),
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_named_with_its_line(text: str) -> None:
    field, message = MISTAKES[text]
    (problem,) = mistakes(a_service(text, "  db: {image: postgres}\n"))
    assert (problem.path, problem.line, problem.field) == ("compose.yaml", 4, field)
    assert message in problem.message


def test_a_service_without_anything_to_run_is_a_mistake() -> None:
    (problem,) = mistakes(a_file("services:\n  web:\n    restart: always\n"))
    assert (problem.line, problem.message) == (2, "has neither image nor build: there is nothing to run.")


def test_a_mistyped_key_at_the_top_is_a_mistake() -> None:
    (problem,) = mistakes(a_file("services: {web: {image: nginx}}\nvolume: {}\n"))
    assert (problem.line, problem.message) == (2, 'is not a key of a compose file. Did you mean "volumes"?')


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("services:\n  web: [\n", 3, "is not valid YAML"),
        ("services:\n\tweb: {}\n", 2, "is not valid YAML"),
        ("hello\n", 1, "is not a compose file: it has no services."),
        ("- a\n- b\n", 1, "is not a compose file: it has no services."),
        ("", 1, "is not a compose file: it has no services."),
        ("apiVersion: v1\ndeploymentProfiles: []\n", 1, "is a Margo application description."),
    ],
)
def test_what_is_no_compose_file_says_so_with_its_line(text: str, line: int, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        a_file(text)
    (problem,) = caught.value.problems
    assert (problem.path, problem.line) == ("compose.yaml", line)
    assert message in problem.message


def test_anchors_and_merge_keys_are_understood() -> None:
    text = "x-base: &base {restart: always}\nservices:\n  web:\n    <<: *base\n    image: nginx\n    bogus: 1\n"
    (problem,) = mistakes(a_file(text))
    assert (problem.line, problem.field) == (6, "services.web.bogus")


def test_extended_and_included_files_may_lack_what_the_other_has() -> None:
    assert list(mistakes(a_file("include: [other.yaml]\nservices: {web: {extends: base, depends_on: [db]}}\n"))) == []


# --- what it needs beside it --------------------------------------------------------------------------------------


def paths(project: dict[str, Any], text: str = "services: {web: {image: nginx}}") -> list[str]:
    return [each.path for each in needed([a_file(text)], project, "/srv/shop")]


def mounting(*volumes: Any) -> dict[str, Any]:
    return {"services": {"web": {"image": "nginx", "volumes": list(volumes)}}, "volumes": {"data": {}}}


@pytest.mark.parametrize(
    ("volume", "packed"),
    [
        ("./html:/usr/share/nginx/html", ["html"]),
        ("./html:/x:ro", ["html"]),
        ("./conf/nginx.conf:/etc/nginx.conf", ["conf/nginx.conf"]),
        (".:/app", ["."]),
        ({"type": "bind", "source": "./html", "target": "/x"}, ["html"]),
        ("/srv/shop/./html:/x", ["html"]),  # as the tool writes what an extended file has
        ("../shared:/x", ["../shared"]),
        ("data:/data", []),
        ("/var/run/docker.sock:/var/run/docker.sock", []),
        ("~/.cache:/cache", []),
        ("/data", []),
        ({"type": "tmpfs", "target": "/tmp"}, []),
        ({"type": "volume", "source": "data", "target": "/data"}, []),
    ],
)
def test_what_is_mounted_from_beside_the_file_goes_along(volume: Any, packed: list[str]) -> None:
    assert paths(mounting(volume)) == packed


def test_paths_outside_the_folder_are_known() -> None:
    assert leads_out("../shared")
    assert not leads_out("..data/x")


def test_files_that_the_compose_file_names_go_along() -> None:
    text = """
services:
  web: {image: nginx, configs: [c], secrets: [s]}
  api: {extends: {file: common/base.yml, service: base}}
include: [other.yaml]
configs: {c: {file: ./nginx.conf}}
secrets: {s: {file: ./secret.txt}}
"""
    project = {"services": {"web": {"env_file": ["web.env", {"path": "maybe.env", "required": False}]}}}
    found = {each.path: each.is_optional for each in needed([a_file(text)], project, "/srv/shop")}
    assert found == {
        "common/base.yml": False,
        "other.yaml": False,
        "web.env": False,
        "maybe.env": True,
        "nginx.conf": False,
        "secret.txt": False,
    }


def test_paths_of_the_node_are_named() -> None:
    assert host_paths(mounting("/mnt/data:/data", "./html:/x", "~/cache:/c", "data:/d"), "/srv/shop") == [
        "/mnt/data",
        "~/cache",
    ]


# --- what stands against it -----------------------------------------------------------------------------------------


def judged(text: str, project: dict[str, Any] | None = None, *, build: bool = False, **secrets: str) -> Judged:
    file = a_file(text)
    offered = [Offered(name, name, "string", value) for name, value in secrets.items()]
    return judge([file], project or dict(file.content), offered, may_build=build)


def test_building_needs_to_be_asked_for() -> None:
    text = "services:\n  web:\n    build: .\n"
    (problem,) = judged(text).objections
    assert (problem.line, problem.field) == (3, "services.web.build")
    assert "--build" in problem.message
    assert judged(text, build=True).objections == ()


def test_a_volume_that_is_not_declared_is_refused() -> None:
    (problem,) = judged("services: {web: {image: nginx, volumes: ['data:/data']}}").objections
    assert problem.message == 'uses the volume "data", which is not among the top-level volumes.'


@pytest.mark.parametrize("kind", ["configs", "secrets"])
def test_what_a_swarm_keeps_is_refused(kind: str) -> None:
    (problem,) = judged(f"services: {{web: {{image: nginx}}}}\n{kind}: {{a: {{external: true}}}}").objections
    assert problem.field == f"{kind}.a.external"


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (
            "services: {dev: {image: a, profiles: [dev]}}",
            "service dev belongs to the profile dev and is not deployed.",
        ),
        ("services: {web: {image: a, deploy: {placement: {}}}}", "deploy.placement is for swarm"),
        ("services: {web: {image: a, develop: {watch: []}}}", "develop is for work on a laptop"),
        ("services: {web: {image: a}}\nvolumes: {v: {external: true}}", "volume v is external"),
    ],
)
def test_what_is_different_is_said(text: str, note: str) -> None:
    found = judged(text)
    assert found.objections == ()
    assert note in " ".join(found.notes)


def test_a_secret_in_a_file_is_pointed_out() -> None:
    found = judged("services: {web: {image: a}}", DB_PASSWORD="hunter2", LEVEL="info")
    assert len(found.notes) == 1
    assert "DB_PASSWORD" in found.notes[0]
    assert "hunter2" not in found.notes[0]


# --- what is written differently ------------------------------------------------------------------------------------


def test_a_file_goes_along_byte_for_byte() -> None:
    text = "# mine\nservices:\n  web: {image: nginx}   # yes\n"
    assert edited(a_file(text), {}).text == text.encode()


def test_an_image_that_was_built_takes_the_place_of_build() -> None:
    text = "services: {web: {build: ., ports: ['22:22']}, db: {image: postgres}}"
    after = read_compose(edited(a_file(text), {"web": "127.0.0.1:5000/local/images/shop-web@sha256:1"}).text, "x")
    assert after.content["services"] == {
        "web": {"ports": ["22:22"], "image": "127.0.0.1:5000/local/images/shop-web@sha256:1"},
        "db": {"image": "postgres"},
    }


def test_configs_become_mounts() -> None:
    text = """
services:
  web: {image: nginx, configs: [page, {source: conf, target: /etc/nginx.conf}], volumes: ['data:/data']}
configs: {page: {content: "cost: $$5"}, conf: {file: nginx.conf}}
volumes: {data: {}}
"""
    after = edited(a_file(text), {})
    assert read_compose(after.text, "x").content["services"]["web"] == {
        "image": "nginx",
        "volumes": ["data:/data", f"./{CONFIGS_FOLDER}/page:/page:ro", "./nginx.conf:/etc/nginx.conf:ro"],
    }
    assert after.files == {f"{CONFIGS_FOLDER}/page": b"cost: $5"}


def test_a_config_that_is_not_there_is_refused() -> None:
    (problem,) = edited(a_file("services: {web: {image: nginx, configs: [nope]}}"), {}).objections
    assert problem.message == 'there is no config "nope" at the top level.'


@pytest.mark.parametrize("port", ["'99999:80'", "'127.0.0.1:8080:70000'", "{target: 80, published: 99999}"])
def test_a_number_that_is_no_port_is_refused_before_anything_is_pulled(port: str) -> None:
    (problem,) = judged(f"services: {{web: {{image: nginx, ports: [{port}]}}}}").objections
    assert problem.field == "services.web.ports[0]"
    assert "is not a port: the highest one is 65535." in problem.message


@pytest.mark.parametrize(
    "port", ["'8080:80'", "80", "'3000-3005:3000-3005/udp'", "'[::1]:6001:6001'", "'${PORT}:80'"]
)
def test_every_form_of_a_port_is_taken(port: str) -> None:
    assert judged(f"services: {{web: {{image: nginx, ports: [{port}]}}}}").objections == ()
