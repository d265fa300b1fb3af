"""The machine's variables in what a chart renders to, on its way into a cluster."""

from typing import Any

import pytest
import yaml

from homeport.adapters.runtime.helm.add_variables import with_variables

OTLP = {"OTLP": "http://10.0.0.1:4318", "MODE": "ours"}
POD = """\
      initContainers: [{name: first}]
      containers:
        - name: web
          args: [12:30, 0777, yes]
          env:
            - {name: MODE, value: theirs}
            - {name: WHERE, value: $(OTLP)}
        - name: side
          env:
"""
WORKLOAD = f"kind: Deployment\nspec:\n  template:\n    spec:\n{POD}"
OTHER = "kind: ConfigMap\ndata:\n  a: |\n    # not a comment\n    ---\n  at: 2026-01-01\n  port: 12:30\n"


def containers(document: Any) -> dict[str, list[dict[str, str]]]:
    spec = document["spec"]["template"]["spec"]
    return {each["name"]: each["env"] for each in (*spec["initContainers"], *spec["containers"])}


def test_every_container_gets_what_it_does_not_set_itself_and_before_what_it_does() -> None:
    (document,) = yaml.safe_load_all(with_variables(WORKLOAD, OTLP))
    ours = {name: {"name": name, "value": value} for name, value in OTLP.items()}
    own = [{"name": "MODE", "value": "theirs"}, {"name": "WHERE", "value": "$(OTLP)"}]
    assert containers(document) == {
        "first": [ours["OTLP"], ours["MODE"]],
        "web": [ours["OTLP"], *own],
        "side": [ours["OTLP"], ours["MODE"]],
    }


def test_what_is_not_added_stays_as_it_was_written() -> None:
    written = with_variables(f"{OTHER}---\n# Source: a.yaml\n{WORKLOAD}---\n", OTLP)
    for text in ("12:30", "0777", "yes", "2026-01-01"):
        assert text in written and f"'{text}'" not in written and f'"{text}"' not in written
    settings, _, *_ = yaml.load_all(written, Loader=yaml.BaseLoader)
    assert settings == yaml.load(OTHER, Loader=yaml.BaseLoader)


@pytest.mark.parametrize("kind", ["Pod", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob", "List"])
def test_whatever_makes_pods_is_known(kind: str) -> None:
    spec: Any = {"containers": [{"name": "web"}]}
    document: dict[str, Any] = {"kind": kind, "spec": {"template": {"spec": spec}}}
    if kind == "Pod":
        document["spec"] = spec
    elif kind == "CronJob":
        document["spec"] = {"jobTemplate": {"spec": document["spec"]}}
    elif kind == "List":
        document = {"kind": "List", "items": [{"kind": "Pod", "spec": spec}]}
    assert 'value: "http://10.0.0.1:4318"' in with_variables(yaml.safe_dump(document), OTLP)


@pytest.mark.parametrize("text", ["", "---\n", "kind: Pod\n", "kind: Pod\nspec: {containers: [7]}\n", "[1]\n"])
def test_what_is_no_workload_passes(text: str) -> None:
    assert list(yaml.safe_load_all(with_variables(text, OTLP))) == list(yaml.safe_load_all(text))
