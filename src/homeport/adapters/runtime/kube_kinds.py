"""What a chart asks of Kubernetes, and what of it can be had without. Pure.

Three verdicts: a kind that runs as pods on this machine, one that is left out because a single machine loses nothing
without it (said in a note), and one that only Kubernetes can honour. The last is refused: an app that starts without
its permissions, its schedule or its network rules is not the app that was asked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from homeport.errors import InvalidInput

Json = dict[str, Any]

WORKLOADS: Final = ("Pod", "Deployment", "DaemonSet")
DATA: Final = ("ConfigMap", "Secret", "PersistentVolumeClaim", "Service")
LEFT_OUT: Final = {
    "ServiceAccount": "there is no Kubernetes API to use it with",
    "PodDisruptionBudget": "nothing evicts pods here",
    "Namespace": "the names of a component are its own anyway",
}
HOOK: Final = "helm.sh/hook"


@dataclass(frozen=True, slots=True)
class Rendered:
    documents: tuple[Json, ...]
    """Those that are used."""
    refused: tuple[str, ...]
    """What only Kubernetes could run, as `StatefulSet db`; in the order of the chart."""
    notes: tuple[str, ...]
    """What a person should know, one sentence each."""


def read_manifests(text: str) -> Rendered:
    """Raises InvalidInput when it is no YAML."""
    try:
        documents = list(yaml.load_all(text, Loader=yaml.CSafeLoader))
    except yaml.YAMLError as error:
        raise InvalidInput(f"The chart renders to invalid YAML: {' '.join(str(error).split())}") from error
    used, refused, notes = [], [], []
    for document in _flat(documents):
        title = f"{document.get('kind') or 'a document without a kind'} {name_of(document)}".strip()
        why = _refusal(document)
        if why is not None:
            refused.append(f"{title}{why}")
        elif document["kind"] in LEFT_OUT:
            notes.append(f"{title} is left out: {LEFT_OUT[document['kind']]}.")
        else:
            used.append(document)
    if not refused and not any(document["kind"] in WORKLOADS for document in used):
        refused.append(f"no {', '.join(WORKLOADS[:-1])} or {WORKLOADS[-1]}")
    return Rendered(tuple(used), tuple(refused), tuple(notes))


def explain_refused(refused: Sequence[str]) -> str:
    """Names what cannot run, and what to do."""
    kinds = ", ".join((*WORKLOADS, *DATA))
    return (
        f"The chart holds {', '.join(refused)}, which needs Kubernetes; without it {kinds} run. "
        "Turn it off with a parameter of the chart, or give the node a cluster with --kubeconfig."
    )


def name_of(document: Mapping[str, Any]) -> str:
    return str((document.get("metadata") or {}).get("name") or "")


def _flat(documents: Sequence[Any]) -> list[Json]:
    found: list[Json] = []
    for document in documents:
        if isinstance(document, dict) and document.get("kind") == "List":
            found += _flat(document.get("items") or [])
        elif isinstance(document, dict) and document:
            found.append(document)
        elif document is not None:
            raise InvalidInput("The chart renders to something that is no Kubernetes object.")
    return found


def _refusal(document: Json) -> str | None:
    """What to add to the object's name; None for what need not be refused."""
    kind = document.get("kind")
    annotations = (document.get("metadata") or {}).get("annotations") or {}
    if HOOK in annotations:
        return f" (a hook: {annotations[HOOK]})"
    if kind not in (*WORKLOADS, *DATA, *LEFT_OUT):
        return ""
    if kind == "Service" and (document.get("spec") or {}).get("type") == "ExternalName":
        return " of type ExternalName"
    return None
