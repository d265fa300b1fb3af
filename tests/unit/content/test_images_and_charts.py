"""One image, or one chart, as an app."""

import pytest

from homeport.catalog.description import parse_description
from homeport.catalog.documents import dump
from homeport.content.importing.charts import import_chart
from homeport.content.importing.description import Imported, app_name, render_description
from homeport.content.importing.images import import_image
from homeport.core.model.app import App
from homeport.errors import InvalidInput
from homeport.vocabulary import ProfileType


def described(imported: Imported) -> App:
    """As the catalog reads it, which refuses what is not valid."""
    repository, revision = imported.place or ("oci://127.0.0.1:5000/local/x", imported.revision)
    data = render_description(imported, repository=repository, revision=revision, version="1.0.0")
    return parse_description(dump(data), "margo.yaml").app


def test_an_image_is_an_app() -> None:
    imported = import_image(
        "nginx:1.25",
        ports=["8080:80"],
        environment=["LEVEL=info", "HOME"],
        volumes=["data:/data", "/srv:/srv:ro"],
        health="http://127.0.0.1:8080/",
        ours={"HOME": "/root"},
    )
    app = described(imported)
    assert (imported.name, imported.notes, imported.place) == (
        "nginx",
        (),
        ("oci://docker.io/library/nginx", "0.0.0"),
    )
    assert {each.name: each.value for each in app.parameters} == {"LEVEL": "info", "HOME": "/root"}
    assert app.profiles[0].components[0].extensions["x-homeport-extensions"]["image"] == {
        "reference": "nginx:1.25",
        "ports": ["8080:80"],
        "mounts": [{"source": "data", "target": "/data"}, {"source": "/srv", "target": "/srv", "read_only": True}],
        "health": {"http": "http://127.0.0.1:8080/"},
    }


@pytest.mark.parametrize(
    ("image", "name", "repository"),
    [
        ("ghcr.io/me/My_App:1", None, None),
        ("ghcr.io/me/app:1", "app", "oci://ghcr.io/me/app"),
        ("localhost:5000/app@sha256:" + "0" * 64, "app", "oci://localhost:5000/app"),
        ("library/redis:7", "redis", "oci://docker.io/library/redis"),
    ],
)
def test_the_name_and_the_place_of_an_image(image: str, name: str | None, repository: str | None) -> None:
    if name is None:
        with pytest.raises(InvalidInput):
            import_image(image, ours={})
        return
    imported = import_image(image, ours={})
    described(imported)
    assert imported.place is not None
    assert (imported.name, imported.place[0]) == (name, repository)


def test_an_image_that_may_change_under_its_name_is_pointed_out() -> None:
    assert "may change" in import_image("nginx", ours={}).notes[0]
    assert import_image("nginx:1.25", ours={}).notes == ()


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("ports", "80", "write 80:80"),
        ("ports", "a:b", "is not a port"),
        ("volumes", "./data:/data", "put it into a compose file"),
        ("volumes", "data", "write"),
        ("environment", "NOPE", "NOPE has no value here"),
        ("environment", "1X=2", "write NAME=value"),
    ],
)
def test_a_wrong_option_of_an_image_says_how_to_write_it(option: str, value: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        import_image("nginx:1", ours={}, **{option: [value]})  # type: ignore[arg-type]
    assert message in str(caught.value)


CHART = {
    "Chart.yaml": b"apiVersion: v2\nname: greeter\nversion: 1.2.0\ndescription: It greets.\n",
    "values.yaml": b"greeting: hello\nreplicas: 2\nratio: 0.5\ndebug: false\nweb: {port: 80}\nnothing:\na.b: 1\n",
    "templates/pod.yaml": b"kind: Pod\n",
}


def test_the_scalars_of_a_chart_are_its_parameters() -> None:
    imported = import_chart(CHART)
    app = described(imported)
    assert (imported.name, app.profiles[0].type, app.description) == ("greeter", ProfileType.HELM, "It greets.")
    assert imported.revision.startswith("1.2.0_")
    assert {each.name: each.value for each in app.parameters} == {
        "greeting": "hello",
        "replicas": 2,
        "ratio": 0.5,
        "debug": False,
        "web.port": 80,
    }


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"Chart.yaml": b"apiVersion: v2\nname: greeter\nversion: 1\n"}, "version"),
        ({"Chart.yaml": CHART["Chart.yaml"] + b"type: library\n"}, "type"),
        ({"Chart.yaml": CHART["Chart.yaml"] + b"dependencies: [{name: redis}]\n"}, "dependencies"),
        ({"values.yaml": b"- a\n"}, ""),
    ],
)
def test_a_chart_that_cannot_be_used_says_why(change: dict[str, bytes], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        import_chart({**CHART, **change})
    assert caught.value.problems[0].field == field


@pytest.mark.parametrize(
    ("path", "content", "said"),
    [
        ("templates/a.yaml", b'{{- $old := (lookup "v1" "Secret" "x" "y") }}\n', "looks things up in the cluster"),
        ("templates/b.yaml", b'metadata:\n  annotations:\n    "helm.sh/hook": pre-install\n', "has hooks"),
        ("templates/c.yaml", b"apiVersion: x\nkind: CustomResourceDefinition\n", "brings CRDs"),
        ("crds/c.yaml", b"kind: CustomResourceDefinition\n", "brings CRDs"),
    ],
)
def test_what_a_device_that_only_renders_a_chart_does_without_is_said(path: str, content: bytes, said: str) -> None:
    (note,) = import_chart({**CHART, path: content}).notes
    assert said in note and path in note
    assert import_chart({**CHART, "templates/d.yaml": b"# a lookup of hooks\nkind: Pod\n"}).notes == ()


def test_the_revision_is_the_content() -> None:
    one, same = import_chart(CHART), import_chart(dict(reversed(CHART.items())))
    other = import_chart({**CHART, "templates/pod.yaml": b"kind: Deployment\n"})
    assert one.revision == same.revision != other.revision


@pytest.mark.parametrize(
    ("candidates", "name"),
    [(("My Shop",), "my-shop"), (("", "shop_1"), "shop-1"), (("", "…"), "app"), (("a" * 80,), "a" * 63)],
)
def test_names_are_bent_to_what_an_app_may_be_called(candidates: tuple[str, ...], name: str) -> None:
    assert app_name(*candidates) == name
