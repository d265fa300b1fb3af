"""What is no app yet, given to the command line: a sentence for each mistake, and an app for everything else."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from homeport.cli.main import run
from tests.support.processes import Machine, machine, start_up

CHART = "apiVersion: v2\nname: greeter\nversion: 1.2.0\n"


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = run(arguments)
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_compose_file_is_validated_and_told_how_to_deploy_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "compose.yaml", "services: {web: {image: nginx}}\n")
    code, text = said(capsys, "apps", "validate", str(file))
    assert (code, f"homeport deploy {file}" in text) == (0, True)
    write(file, "services:\n  web:\n    imge: nginx\n")
    code, text = said(capsys, "apps", "validate", str(tmp_path))
    assert code == 1
    assert 'compose.yaml:3  services.web.imge\n      is not a key of a service. Did you mean "image"?' in text


def test_a_compose_file_is_not_added_to_the_catalog_but_deployed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "compose.yaml", "services: {web: {image: nginx}}\n")
    for path in (file, tmp_path):
        code, text = said(capsys, "apps", "add", str(path))
        assert (code, "homeport deploy " in text) == (1, True)
    renamed = write(tmp_path / "margo.yaml", file.read_text())
    file.unlink()
    code, text = said(capsys, "apps", "validate", str(renamed))
    assert (code, f"homeport deploy {renamed}" in text) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Name what to deploy"),
        (("hello", "--image", "nginx"), "give one of the two"),
        (("hello", "-p", "80:80"), "goes with --image"),
        (("./shop", "--health", "http://x"), "healthcheck of its own"),
        (("hello", "--build"), "hello is in the catalog"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    code, text = said(capsys, "deploy", *arguments)
    assert (code, words in text) == (2, True)


def test_an_app_is_written_for_git_and_is_valid_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "shop" / "html" / "index.html", "hi")
    write(
        tmp_path / "shop" / "compose.yaml",
        "services: {web: {image: 'nginx:${TAG:-1}', volumes: ['./html:/html:ro']}}\n",
    )
    into = tmp_path / "apps"
    code, text = said(capsys, "apps", "init", str(tmp_path / "shop"), "--to", str(into))
    assert (code, "homeport apps push" in text) == (0, True)
    assert (into / "local/shop/1.0.0/components/shop/html/index.html").read_text() == "hi"
    assert said(capsys, "apps", "validate", str(into))[0] == 0
    code, text = said(capsys, "apps", "init", str(tmp_path / "shop"), "--to", str(into))
    assert (code, "already exists" in text) == (5, True)
    (into / "local/shop/1.0.0/components/shop/html/index.html").unlink()
    (into / "local/shop/1.0.0/components/shop/html").rmdir()
    code, text = said(capsys, "apps", "validate", str(into))
    assert (code, "local/shop/1.0.0/components/shop/compose.yaml:1  services.web.volumes[0]" in text) == (1, True)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Machine]:
    with machine(tmp_path / "host") as started:
        start_up(started, runtime="null")
        yield started


def test_an_image_and_a_chart_become_apps(host: Machine, tmp_path: Path) -> None:
    wait = ("--no-wait", "-o", "json")
    host.homeport("deploy", "--image", "nginx:1.25", "-p", "8080:80", "-e", "LEVEL=info", *wait)
    write(tmp_path / "greeter" / "Chart.yaml", CHART)
    write(tmp_path / "greeter" / "values.yaml", "greeting: hello\nreplicas: 1\nweb: {port: 80}\n")
    host.homeport("deploy", str(tmp_path / "greeter"), "--set", "replicas=2", *wait)
    deployed = {each["name"]: each for each in host.json("deployments", "list")["deployments"]}
    assert deployed["nginx"]["parameters"] == {"LEVEL": "info"}
    assert (deployed["greeter"]["profile_type"], deployed["greeter"]["parameters"]) == (
        "helm",
        {"greeting": "hello", "replicas": 2, "web.port": 80},
    )

    (other,) = [app for app in host.json("apps", "list")["apps"] if app["app_name"] == "greeter"]
    assert other["category"] == "local"


def test_what_is_refused_leaves_nothing_in_the_catalog(host: Machine, tmp_path: Path) -> None:
    """A name that another app has at the site, a place that is not there, a value that does not fit."""
    web = "services:\n  web:\n    image: nginx\n    ports: ['${PORT:-80}:80']\n"
    shop = str(write(tmp_path / "shop" / "compose.yaml", web).parent)
    host.homeport("deploy", "--image", "nginx:1.25", "--name", "taken", "--no-wait")
    built = write(tmp_path / "built" / "compose.yaml", "services:\n  web:\n    build: .\n")
    before = host.json("apps", "list")["apps"]
    for arguments, code, words in (
        ((shop, "--name", "taken"), 5, '"taken" at site "home" is another app'),
        ((shop, "--site", "hom"), 3, 'Did you mean "home"?'),
        ((shop, "--host", "nothere"), 3, 'no node called "nothere"'),
        ((shop, "--set", "PORT=abc"), 1, "parameters.PORT"),
        ((shop, "--set", "PROT=1"), 1, "parameters.PROT"),
        ((str(built),), 1, "compose.yaml:3  services.web.build\n      is built from source"),
    ):
        refused = host.command("deploy", *arguments)
        assert (refused.returncode, words in refused.stderr) == (code, True), refused.stderr
        assert host.json("apps", "list")["apps"] == before, f"{arguments} has left an app behind"
    # The first version is still to be had; another refusal does not take it away.
    host.homeport("deploy", shop, "--no-wait")
    after = host.json("apps", "list")["apps"]
    assert [each["version"] for each in after if each["app_name"] == "shop"] == ["1.0.0"]
    host.command("deploy", shop, "--name", "taken")
    assert host.json("apps", "list")["apps"] == after
