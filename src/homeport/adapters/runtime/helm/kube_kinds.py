"""Which Kubernetes objects of a chart can run without Kubernetes. Pure.

Three verdicts: a kind that runs as pods on this machine, one that is left out because a single machine does not need
it (with a note), and one that only Kubernetes supports. The last is refused: an app that starts without its
permissions, its schedule or its network rules is not the requested app.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from homeport.adapters.files.bounded_yaml import load_documents
from homeport.errors import InvalidInput
from homeport.lazy_dataclass import dataclass

Json = dict[str, Any]

SIZE_MAX: Final = 8 * 1024 * 1024

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
    """Notes for the user, one sentence each."""


def read_manifests(text: str) -> Rendered:
    """Raises InvalidInput when it is not YAML within bounds. Call it in a thread: charts can be large."""
    documents = load_documents(text, "What the chart renders to", size_max=SIZE_MAX)
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
            raise InvalidInput("The chart renders to something that is not a Kubernetes object.")
    return found


def _refusal(document: Json) -> str | None:
    """What to add to the object's name; None for an object that is not refused."""
    kind = document.get("kind")
    annotations = (document.get("metadata") or {}).get("annotations") or {}
    if HOOK in annotations:
        return f" (a hook: {annotations[HOOK]})"
    if kind not in (*WORKLOADS, *DATA, *LEFT_OUT):
        return ""
    if kind == "Service" and (document.get("spec") or {}).get("type") == "ExternalName":
        return " of type ExternalName"
    return None
