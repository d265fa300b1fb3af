"""One model of the catalog: where it comes from, what its files must hash to, whether it may be used. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from enum import StrEnum
from typing import Any, Final

from homeport.core.inference.models.lifecycle import ModelLifecycle
from homeport.core.inference.models.on_request import OnRequest, read_on_request
from homeport.core.inference.models.references import check_digest, check_model_id, parse_reference
from homeport.errors import InvalidInput, PermanentError, Problem
from homeport.lazy_dataclass import dataclass

INDEX_SCHEMA: Final = 1
TAGS_MAX: Final = 64
LIST_MAX: Final = 256


class UntrustedArtifact(PermanentError):
    """The trust policy does not allow this model."""

    code = "UNTRUSTED_ARTIFACT"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustPolicy:
    is_strict: bool = False
    allowed_registries: tuple[str, ...] = ()
    require_signature: bool = False
    require_sbom: bool = False

    @property
    def needs_signature(self) -> bool:
        return self.is_strict or self.require_signature


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    id: str
    source: str
    """The model reference; empty where only the digest is known."""
    digest: str = ""
    size_bytes: int = 0
    state: ModelLifecycle = ModelLifecycle.ACTIVE
    local_path: str = ""
    """Of its files, below the store; empty while they are not here."""
    last_verified_ms: int = 0
    verification: str = ""
    """How that went: passed, failed, unchecked."""
    tags: tuple[str, ...] = ()
    manifests: tuple[Mapping[str, Any], ...] = ()
    signatures: tuple[Mapping[str, Any], ...] = ()
    """With `verified` as this server found it, never as a caller says."""
    policy: TrustPolicy = TrustPolicy()
    """What was demanded of it when it was added; every later use is judged by it."""
    sbom: Mapping[str, Any] | None = None
    on_request: OnRequest | None = None
    """How it is served when the first task asks for it; None: only where somebody deploys it."""
    ends_at_ms: int = 0
    """Of a retired model: what it has taken ends then. 0: it may finish."""
    is_removed: bool = False
    """A retired model that was removed. Only that is kept of it: engines that serve it must not load it again."""


class Verification(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    """Blocks admission."""
    UNCHECKED = "unchecked"
    """No digest is known: a warning."""


def verdict(expected: str, found: str | None) -> Verification:
    """`found` is None where there is no file."""
    if not expected:
        return Verification.UNCHECKED
    return Verification.PASSED if expected == found else Verification.FAILED


def removed(entry: ModelEntry) -> ModelEntry | None:
    """What the catalog keeps of a model that is removed from it."""
    if entry.state is not ModelLifecycle.RETIRED:
        return None
    return ModelEntry(id=entry.id, source=entry.source, state=entry.state, is_removed=True)


def judge_trust(entry: ModelEntry, policy: TrustPolicy) -> None:
    """Raises UntrustedArtifact with what is missing and what to do."""
    host = _registry_of(entry.source)
    if policy.allowed_registries and host not in policy.allowed_registries:
        raise UntrustedArtifact(
            f"{entry.id} comes from {host or 'an unnamed source'}, which the trust policy does not allow.",
            hint=f"It allows {', '.join(policy.allowed_registries)}.",
        )
    if policy.needs_signature and not is_signed(entry):
        raise UntrustedArtifact(
            f"{entry.id} has no signature that this server could verify, and the trust policy demands one.",
            hint="Sign its file with  cosign sign-blob --key  and give signature and digest, or sign its artifact in "
            "the registry with  cosign sign --key . An administrator names the public keys with --model-key.",
        )
    if policy.require_sbom and entry.sbom is None:
        raise UntrustedArtifact(f"{entry.id} has no SBOM, and the trust policy demands one.", hint="Add its sbom.")


def is_signed(entry: ModelEntry) -> bool:
    return any(each.get("verified") is True for each in entry.signatures)


def stricter(one: TrustPolicy, other: TrustPolicy) -> TrustPolicy:
    """What both demand."""
    allowed = one.allowed_registries or other.allowed_registries
    if one.allowed_registries and other.allowed_registries:
        allowed = tuple(each for each in allowed if each in other.allowed_registries) or ("",)
    return TrustPolicy(
        is_strict=one.is_strict or other.is_strict,
        allowed_registries=allowed,
        require_signature=one.require_signature or other.require_signature,
        require_sbom=one.require_sbom or other.require_sbom,
    )


def new_entry(
    *, model_id: str, source: str, digest: str, tags: Sequence[str] = (), size_bytes: int = 0, **more: Any
) -> ModelEntry:
    """Raises InvalidInput that names the field."""
    check_model_id(model_id)
    if source:
        source = parse_reference(source, field="source_url").text
    if digest:
        check_digest(digest)
    if len(tags) > TAGS_MAX or any(len(tag) > 128 for tag in tags):
        raise InvalidInput(problems=[Problem("tags", f"must be at most {TAGS_MAX}, of 128 characters each")])
    return ModelEntry(id=model_id, source=source, digest=digest, tags=tuple(tags), size_bytes=size_bytes, **more)


def index_data(entries: Mapping[str, ModelEntry]) -> dict[str, Any]:
    models = [entry_data(entries[name]) for name in sorted(entries)]
    return {"schema": INDEX_SCHEMA, "models": models}


def read_index(data: Any) -> tuple[dict[str, ModelEntry], tuple[str, ...]]:
    """The entries, and a sentence for each that was left out. Raises InvalidInput for an index of a newer version."""
    if not isinstance(data, Mapping) or not isinstance(data.get("models"), list):
        raise InvalidInput("The model index is not one: it must be an object with a list of models.")
    if data.get("schema") != INDEX_SCHEMA:
        raise InvalidInput(
            f"The model index has schema {data.get('schema')!r}; this version reads {INDEX_SCHEMA}.",
            hint="Upgrade Homeport, or move the index away to begin a new one.",
        )
    entries, problems = {}, []
    for position, each in enumerate(data["models"]):
        try:
            entry = read_entry(each)
            entries[entry.id] = entry
        except (InvalidInput, TypeError, ValueError, AttributeError, LookupError, OverflowError) as error:
            problems.append(f"entry {position} of the model index is not readable: {error}")
    return entries, tuple(problems)


def verified(entry: ModelEntry, found: str | None, *, at_ms: int) -> ModelEntry:
    return replace(entry, verification=verdict(entry.digest, found).value, last_verified_ms=at_ms)


def entry_data(entry: ModelEntry) -> dict[str, Any]:
    return {**asdict(entry), "state": entry.state.value}


def read_entry(data: Any) -> ModelEntry:
    """Raises InvalidInput, and TypeError, ValueError or AttributeError for anything that is not an entry."""
    path = str(data.get("local_path") or "")
    if path.startswith("/") or ".." in path.split("/"):
        raise InvalidInput(f"{path!r} leaves the model store")
    sbom = data.get("sbom")
    return new_entry(
        model_id=str(data["id"]) if "id" in data else "",
        source=str(data.get("source") or ""),
        digest=str(data.get("digest") or ""),
        tags=[str(tag) for tag in data.get("tags") or ()],
        size_bytes=int(data.get("size_bytes") or 0),
        state=ModelLifecycle(data.get("state", ModelLifecycle.ACTIVE)),
        local_path=path,
        last_verified_ms=int(data.get("last_verified_ms") or 0),
        verification=str(data.get("verification") or ""),
        manifests=tuple(data.get("manifests") or ()),
        signatures=tuple(dict(each) for each in data.get("signatures") or ()),
        policy=_read_policy(data.get("policy")),
        sbom=dict(sbom) if sbom else None,
        on_request=read_on_request(data.get("on_request")),
        ends_at_ms=int(data.get("ends_at_ms") or 0),
        is_removed=bool(data.get("is_removed")),
    )


def _read_policy(data: Any) -> TrustPolicy:
    if not data:
        return TrustPolicy()
    return TrustPolicy(**{**data, "allowed_registries": tuple(data.get("allowed_registries") or ())})


def _registry_of(source: str) -> str:
    if not source:
        return ""
    reference = parse_reference(source)
    place = reference.place.partition("://")[2] or reference.place
    return reference.scheme.value if reference.scheme.value in ("hf", "file") else place.partition("/")[0]
