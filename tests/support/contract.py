"""A client whose every answer of `/v1` and `/v2` has to be one that the OpenAPI document describes: its status, its
content type, its required headers and its body."""

import re
from typing import Any

from jsonschema import Draft202012Validator

from tests.support.running_central import Answer, Client

_documents: list[dict[str, Any]] = []
"""Of this code, which is the same for every central of a test run."""


class CheckedClient(Client):
    async def call(self, method: str, path: str, **options: Any) -> Answer:
        answer = await super().call(method, path, **options)
        if path.startswith(("/v1/", "/v2/")):
            if not _documents:
                _documents.append((await super().call("GET", "/openapi.json")).body)
            problem = problem_of(_documents[0], method, path.partition("?")[0], answer)
            assert problem is None, f"{method} {path} answered what its document does not have: {problem}"
        return answer


def problem_of(document: dict[str, Any], method: str, path: str, answer: Answer) -> str | None:
    operation = _operation(document, method.lower(), path)
    if operation is None:
        return None if answer.status in {404, 405} else "there is no such operation"
    described = operation["responses"].get(str(answer.status))
    if described is None:
        return f"status {answer.status}: {answer.body}"
    missing = [name for name in described.get("headers", {}) if name not in answer.headers]
    if missing:
        return f"no header {missing}"
    return _problem_of_body(document, described.get("content", {}), answer)


def _problem_of_body(document: dict[str, Any], content: dict[str, Any], answer: Answer) -> str | None:
    kind = answer.headers.get("Content-Type", "").partition(";")[0]
    if kind not in content:
        return None if not content and not answer.body else f"{kind!r}, and not one of {list(content)}"
    if "json" not in kind:
        return None
    schema = {**content[kind]["schema"], "components": document["components"]}
    error = next(iter(Draft202012Validator(schema).iter_errors(answer.body)), None)
    return None if error is None else f"{error.json_path} {error.message}"


def _operation(document: dict[str, Any], method: str, path: str) -> dict[str, Any] | None:
    """The most literal of those that match."""
    for template in sorted(document["paths"], key=lambda each: (each.count("{"), -len(each))):
        operation: dict[str, Any] | None = document["paths"][template].get(method)
        # Paths of any length are those of /v1 alone.
        pattern = re.sub(r"\\\{[^}]*\\\}", ".+" if template.startswith("/v1/") else "[^/]+", re.escape(template))
        if operation is not None and re.fullmatch(pattern, path):
            return operation
    return None
