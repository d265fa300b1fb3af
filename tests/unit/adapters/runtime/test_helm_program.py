"""What is said to helm: values keep their type, secrets stand on no command line."""

from dataclasses import replace
from pathlib import Path

from homeport.adapters.runtime.helm.program import (
    release_name,
    status_command,
    template_command,
    uninstall_command,
    upgrade_command,
    value_arguments,
    values_of,
)
from homeport.core.model.deployment import ComponentSpec
from homeport.vocabulary import ProfileType

HELM, CHART, CONFIG = Path("/bin/helm"), Path("/c.tgz"), Path("/k.yaml")
SPEC = ComponentSpec("web", ProfileType.HELM, "oci://h/web", "1.0.0", timeout_seconds=90)


def test_values_are_json_at_their_pointers() -> None:
    values = {"global.config.pollFrequency": "30", "name": '"a, b=c"', "list[0].on": "true"}
    assert value_arguments(values, {"password": Path("/f")}) == [
        *("--set-json", "global.config.pollFrequency=30"),
        *("--set-json", 'name="a, b=c"'),
        *("--set-json", "list[0].on=true"),
        *("--set-file", "password=/f"),
    ]


def test_a_secret_is_in_a_file_that_goes_away() -> None:
    spec = replace(SPEC, environment={"a": "1", "key": "secret://k"}, secret_values={"k": "hidden"})
    with values_of(spec) as arguments:
        assert arguments[:3] == ["--set-json", "a=1", "--set-file"]
        path = Path(arguments[3].removeprefix("key="))
        assert path.read_text() == "hidden"
        assert path.parent.stat().st_mode & 0o077 == 0
    assert not path.exists()


def test_the_command_lines() -> None:
    assert template_command(HELM, "web", CHART, ["--set-json", "a=1"]) == [
        *("/bin/helm", "template", "web", "/c.tgz", "--include-crds", "--skip-tests", "--set-json", "a=1")
    ]
    wanted = ["/bin/helm", "upgrade", "web-1", "/c.tgz", "--install", "--kubeconfig", "/k.yaml"]
    wanted += ["--description", SPEC.digest, "--history-max", "5", "--timeout", "90s", "--wait"]
    assert upgrade_command(HELM, "web-1", CHART, SPEC, [], kubeconfig=CONFIG) == wanted
    assert "--wait" not in upgrade_command(HELM, "web-1", CHART, replace(SPEC, wait=False), [], kubeconfig=CONFIG)
    assert uninstall_command(HELM, "web-1", 30.0, kubeconfig=CONFIG) == [
        *("/bin/helm", "uninstall", "web-1", "--kubeconfig", "/k.yaml"),
        *("--wait", "--ignore-not-found", "--timeout", "30s"),
    ]
    assert status_command(HELM, "web-1", kubeconfig=CONFIG)[-2:] == ["--output", "json"]


def test_a_release_name_is_as_short_as_helm_wants_it() -> None:
    assert release_name("web") == "web"
    assert len(release_name("w" * 60)) == 53
