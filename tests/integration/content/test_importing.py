"""Compose files and charts on a real disk, read by the real compose tool."""

from pathlib import Path

import pytest

from homeport.content.importing.folders import ImportSourceOptions, check_component, import_path
from homeport.content.importing.uploads import ImportUpload, import_upload
from homeport.core.archive import check_archive
from homeport.errors import InvalidInput, NotFound, Problem, TooLarge
from homeport.vocabulary import ProfileType

SHOP = """
name: Shop
services:
  web:
    extends: {file: base.yml, service: base}
    image: nginx:${TAG:-1.25}
    ports: ["${PORT:-8080}:80"]
    volumes: ["./html:/usr/share/nginx/html:ro", "data:/data"]
    env_file: [web.env, {path: maybe.env, required: false}]
    environment: {ZONE: "${TZ:-UTC}", HOME: "${HOME}"}
    configs: [motd]
  dev:
    image: busybox
    profiles: [dev]
volumes: {data: {}}
configs: {motd: {content: hello}}
"""


def write(folder: Path, **files: str) -> Path:
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    folder = tmp_path / "my folder"
    files = {"base_yml": "services:\n  base:\n    restart: always\n    volumes: ['./more:/more']\n    image: x\n"}
    write(folder, compose_yaml=SHOP, html__index_html="hi", more__run_sh="#!/bin/sh\n", web_env="A=1\n", **files)
    (folder / ".env").write_text("TAG=1.26\nUNUSED=1\n")
    (folder / "more" / "tool").write_bytes(b"\x7fELF")
    (folder / "more" / "tool").chmod(0o755)
    (folder / "other").mkdir()
    (folder / "other" / "secret.txt").write_text("not mounted")
    return folder


def problems_of(folder: Path, **values: str) -> list[Problem]:
    with pytest.raises(InvalidInput) as caught:
        import_path(folder, ImportSourceOptions(values=values))
    return list(caught.value.problems)


def test_a_folder_becomes_an_app_with_all_that_it_mounts_and_nothing_else(shop: Path) -> None:
    imported = import_path(shop, ImportSourceOptions())
    assert (imported.name, imported.type) == ("shop", ProfileType.COMPOSE)
    assert {each.name: each.default for each in imported.offered} == {"TAG": "1.26", "PORT": 8080, "TZ": "UTC"}
    entries = {entry.path: entry for entry in check_archive(imported.archive) if not entry.is_directory}
    assert set(entries) == {
        "compose.yaml",
        "base.yml",
        "web.env",
        "html/index.html",
        "more/run.sh",
        "more/tool",
        "homeport-configs/motd",
    }
    assert entries["more/tool"].is_executable
    assert "service dev belongs to the profile dev and is not deployed." in imported.notes
    assert any(note.startswith("./more goes along") for note in imported.notes)
    assert not any(note.startswith("./html goes along") for note in imported.notes), "it is read-only"


def test_equal_folders_have_equal_revisions_and_a_changed_file_another(shop: Path) -> None:
    before = import_path(shop, ImportSourceOptions()).revision
    assert import_path(shop / "compose.yaml", ImportSourceOptions()).revision == before
    (shop / "html" / "index.html").write_text("changed")
    assert import_path(shop, ImportSourceOptions()).revision != before


def test_a_plain_file_named_as_docker_does_is_packed_under_the_name_that_devices_read(tmp_path: Path) -> None:
    text = "services: {web: {image: nginx}}  # kept\n"
    (tmp_path / "docker-compose.yml").write_text(text)
    imported = import_path(tmp_path, ImportSourceOptions("Other"))
    assert (imported.name, imported.files) == ("other", {"compose.yaml": text.encode()})


def test_what_is_missing_is_named_by_line_all_at_once(tmp_path: Path) -> None:
    text = (
        "services:\n  web:\n    image: nginx\n    env_file: no.env\n    volumes:\n    - ./data:/data\n    - ../x:/x\n"
    )
    found = problems_of(write(tmp_path, compose_yaml=text))
    assert [(problem.line, problem.field) for problem in found] == [
        (4, "services.web.env_file"),
        (6, "services.web.volumes[0]"),
        (7, "services.web.volumes[1]"),
    ]
    assert "named volume" in found[1].message
    assert "outside the folder" in found[2].message


def test_an_undefined_variable_is_known_before_anything_is_written(tmp_path: Path) -> None:
    write(tmp_path, compose_yaml="services: {web: {image: 'nginx:${TAG:?which}', environment: ['A=${B}']}}\n")
    assert list(import_path(tmp_path, ImportSourceOptions()).undefined) == ["TAG", "B"]
    assert list(import_path(tmp_path, ImportSourceOptions(values={"TAG": "1", "B": ""})).undefined) == []


def test_what_the_compose_tool_refuses_is_refused(tmp_path: Path) -> None:
    text = "services: {web: {image: nginx, extends: {service: nope}}}\n"
    (problem,) = problems_of(write(tmp_path, compose_yaml=text))
    assert problem.path == "compose.yaml"


def test_links_and_large_folders_are_refused(tmp_path: Path) -> None:
    write(tmp_path, compose_yaml="services: {web: {image: nginx, volumes: ['./html:/x:ro']}}\n", html__a="a")
    (tmp_path / "html" / "link").symlink_to("/etc/passwd")
    assert "is a link" in problems_of(tmp_path)[0].message
    (tmp_path / "html" / "link").unlink()
    with (tmp_path / "html" / "large").open("wb") as large:
        large.truncate(65 * 2**20)
    with pytest.raises(TooLarge, match="64 MiB"):
        import_path(tmp_path, ImportSourceOptions())


def test_a_folder_without_anything_to_deploy_says_what_it_looked_for(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"has no compose\.yaml and no Chart\.yaml"):
        import_path(tmp_path, ImportSourceOptions())


def test_the_component_of_an_app_is_read_as_a_node_would(tmp_path: Path) -> None:
    text = "services:\n  web:\n    image: nginx:${TAG}\n    build: .\n    ports: ['${PORT}:80']\n"
    found = check_component(write(tmp_path, compose_yaml=text), ["PORT"])
    assert [problem.field for problem in found] == ["services.web.image", "services.web.build"]
    assert "pointer TAG" in found[0].message


def test_a_chart_folder_becomes_an_app(tmp_path: Path) -> None:
    chart = "apiVersion: v2\nname: greeter\nversion: 1.2.0\n"
    write(tmp_path, Chart_yaml=chart, values_yaml="greeting: hello\n", templates__pod_yaml="kind: Pod\n")
    imported = import_path(tmp_path, ImportSourceOptions())
    assert (imported.name, imported.type, len(imported.files)) == ("greeter", ProfileType.HELM, 3)


def test_files_that_were_sent_become_the_same_app_as_from_a_folder(shop: Path) -> None:
    files = {path.relative_to(shop).as_posix(): path.read_text() for path in shop.rglob("*") if path.is_file()}
    sent, read = import_upload(ImportUpload(files)), import_path(shop, ImportSourceOptions())
    assert (sent.name, sent.offered, sent.files) == (read.name, read.offered, read.files)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"compose.yaml": "services: {a: {image: x, env_file: /etc/passwd}}"}, "/etc/passwd is not a file beside"),
        ({"compose.yaml": "services: {a: {image: x, env_file: ../../.env}}"}, "../../.env is not a file beside"),
        ({"compose.yaml": "services: {a: {image: x, env_file: '${HOME}/.env'}}"}, "is not a file beside"),
        ({"compose.yaml": "include: [/etc/x.yaml]\nservices: {a: {image: x}}"}, "/etc/x.yaml is not a file beside"),
        ({"compose.yaml": "services: {a: {extends: {file: ~/x.yaml, service: b}}}"}, "~/x.yaml is not a file"),
        ({"compose.yaml": "services: {a: {image: x}}", "../b": ""}, "is not a file name below"),
        ({"compose.yaml": "services: {a: {image: x}}", "compose.yaml/b": ""}, "lies in what is a file"),
        ({"notes.txt": ""}, "has no compose.yaml"),
        ({"compose.yaml": "services: {a: {build: .}}"}, "is built from source"),
    ],
)
def test_files_that_were_sent_name_nothing_of_this_machine(files: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        import_upload(ImportUpload(files))
    assert any(said in problem.message for problem in refused.value.problems), refused.value.problems


def test_a_file_of_many_services_is_summed_up(tmp_path: Path) -> None:
    services = "".join(f"  s{number}: {{image: x}}\n" for number in range(12))
    summary = import_upload(ImportUpload({"compose.yaml": f"services:\n{services}"})).summary
    assert summary == "The services s0, s1, s2, s3 and 8 more of compose.yaml."
