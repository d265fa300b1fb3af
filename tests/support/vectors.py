"""The Margo test vectors in tests/vectors/margo, and the patches they are written in (RFC 6902)."""

import copy
import json
from pathlib import Path
from typing import Any

import yaml

MARGO = Path(__file__).resolve().parents[1] / "vectors" / "margo"


def load_json(name: str) -> Any:
    return json.loads((MARGO / f"{name}.json").read_text("utf-8"))


def load_yaml(name: str) -> Any:
    return yaml.safe_load((MARGO / name).read_text("utf-8"))


def patched(document: Any, operations: list[dict[str, Any]]) -> Any:
    """`add`, `replace` and `remove` on mappings and lists; the vectors use nothing else."""
    document = copy.deepcopy(document)
    for operation in operations:
        *steps, last = operation["path"].removeprefix("/").split("/")
        place = document
        for step in steps:
            place = place[int(step)] if isinstance(place, list) else place[step]
        key = int(last) if isinstance(place, list) else last
        if operation["op"] == "remove":
            del place[key]
        else:
            place[key] = operation["value"]
    return document


def as_yaml(document: Any) -> bytes:
    return yaml.safe_dump(document, sort_keys=False).encode()
