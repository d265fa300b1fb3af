"""What helm runs between rendering a chart and applying it, its `--post-renderer`:

    python -I add_variables.py '{"NAME": "value"}' < MANIFESTS > MANIFESTS

Every container gets the variables that it does not set itself. Nothing else changes: YAML is neither read as values
nor written from them, since helm reads some of it in another way than Python (`12:30`).
"""

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

TEMPLATE: Final = ("spec", "template", "spec")
POD_SPECS: Final[Mapping[str, tuple[str, ...]]] = {
    "Pod": ("spec",),
    **dict.fromkeys(
        ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job"), TEMPLATE
    ),
    "CronJob": ("spec", "jobTemplate", *TEMPLATE),
}
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def with_variables(manifests: str, variables: Mapping[str, str]) -> str:
    documents = list(yaml.compose_all(manifests, Loader=_Loader))
    for document in documents:
        _unfold(document)
        for spec in _pod_specs(document):
            for kind in ("initContainers", "containers"):
                for container in _items(_member(spec, kind)):
                    _add(container, variables)
    return str(yaml.serialize_all(documents, Dumper=_Dumper, explicit_start=True, allow_unicode=True, width=2**30))


def _unfold(node: yaml.Node) -> None:
    """Within brackets `12:30` could not be written as it was."""
    if isinstance(node, yaml.CollectionNode):
        node.flow_style = False
        for each in node.value:
            for inner in each if isinstance(each, tuple) else (each,):
                _unfold(inner)


def _pod_specs(document: yaml.Node | None) -> Iterator[yaml.Node | None]:
    kind = getattr(_member(document, "kind"), "value", "")
    if kind == "List":
        for item in _items(_member(document, "items")):
            yield from _pod_specs(item)
    elif kind in POD_SPECS:
        found = document
        for step in POD_SPECS[kind]:
            found = _member(found, step)
        yield found


def _add(container: yaml.Node, variables: Mapping[str, str]) -> None:
    if not isinstance(container, yaml.MappingNode):
        return
    own = _items(_member(container, "env"))
    known = {getattr(_member(each, "name"), "value", None) for each in own}
    more = [_mapping(name=name, value=value) for name, value in variables.items() if name not in known]
    rest = [pair for pair in container.value if pair[0].value != "env"]
    container.value = [*rest, (_text("env"), yaml.SequenceNode("tag:yaml.org,2002:seq", [*more, *own]))]


def _member(node: yaml.Node | None, name: str) -> yaml.Node | None:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((value for key, value in pairs if key.value == name), None)


def _items(node: yaml.Node | None) -> list[yaml.Node]:
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _mapping(**values: str) -> yaml.Node:
    return yaml.MappingNode(
        "tag:yaml.org,2002:map", [(_text(key), _text(value, style='"')) for key, value in values.items()]
    )


def _text(value: str, style: str | None = None) -> yaml.Node:
    return yaml.ScalarNode("tag:yaml.org,2002:str", value, style=style)


if __name__ == "__main__":
    sys.stdout.write(with_variables(sys.stdin.read(), json.loads(sys.argv[1])))
