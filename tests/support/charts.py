"""Small helm charts for tests, as artifacts in a registry."""

import json
from collections.abc import Mapping

import yaml

from homeport.adapters.runtime.helm.chart import CONFIG_TYPE, CONTENT_TYPE
from homeport.core.archive import pack_archive
from homeport.ports import Artifact, Layer


def chart_artifact(
    templates: Mapping[str, str], values: Mapping[str, object] | None = None, *, version: str = "1.0.0"
) -> Artifact:
    """`templates` by file name; they are helm templates, so `{{ }}` in them is helm's."""
    described = {"apiVersion": "v2", "name": "probe", "version": version}
    files = {"Chart.yaml": yaml.safe_dump(described).encode(), "values.yaml": yaml.safe_dump(values or {}).encode()}
    files |= {f"templates/{name}": text.encode() for name, text in templates.items()}
    config = Layer(CONFIG_TYPE, json.dumps(described).encode())
    return Artifact(CONFIG_TYPE, (Layer(CONTENT_TYPE, pack_archive("probe", files)),), config=config)


def deployment(name: str, container: Mapping[str, object], *, replicas: int = 1, **pod: object) -> str:
    """A Deployment with one container `app`. JSON is YAML, and its strings may hold helm's braces."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", **container}], **pod}}
    return json.dumps(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
        }
    )
