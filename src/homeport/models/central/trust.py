"""Which models of the catalog are trusted: those that the policy they were added with allows, and, where the server
has keys for models, one of these has signed. What a caller says of a signature is not believed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from homeport.adapters.registry.large_files import model_in
from homeport.adapters.registry.oci import MANIFEST_SIZE_MAX, MANIFEST_TYPE, OciRegistry
from homeport.adapters.registry.reference import parse_reference as parse_repository
from homeport.adapters.registry.signatures import fingerprint, read_key, signature_tag, signs_digest
from homeport.adapters.registry.signatures import is_signed as is_signed_artifact
from homeport.core.inference.models.entries import (
    ModelEntry,
    TrustPolicy,
    UntrustedArtifact,
    is_signed,
    judge_trust,
    stricter,
)
from homeport.core.inference.models.references import Scheme, parse_reference
from homeport.core.model.deployment import digest_of_bytes
from homeport.errors import DigestMismatch, NotFound
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import Digest

ALGORITHM: Final = "ecdsa-sha256"
Key = tuple[str, Any]
"""Its name with its fingerprint, which is the signer of what it verified, and the key."""


def read_model_key(path: Path) -> Key:
    """Raises InvalidInput."""
    key = read_key(path)
    return f"{path.stem}:{fingerprint(key)}", key


@dataclass(frozen=True, slots=True)
class ModelTrust:
    registry: OciRegistry
    keys: Sequence[Key] = ()

    @property
    def allows_unknown(self) -> bool:
        """Whether a model may be used that is not in the catalog."""
        return not self.keys

    def policy_of(self, entry: ModelEntry) -> TrustPolicy:
        return stricter(entry.policy, TrustPolicy(require_signature=bool(self.keys)))

    def allows(self, entry: ModelEntry) -> bool:
        """By what was verified when it was added, for the keys that the server has now."""
        try:
            self.judge(entry, entry.source)
        except UntrustedArtifact:
            return False
        return True

    def judge(self, entry: ModelEntry | None, reference: str) -> None:
        """Raises UntrustedArtifact."""
        if entry is not None:
            names = {name for name, _ in self.keys}
            known = tuple(each for each in entry.signatures if each.get("signer") in names)
            judge_trust(replace(entry, signatures=known), self.policy_of(entry))
        elif not self.allows_unknown:
            raise UntrustedArtifact(
                f"{reference[:200]} is not in the catalog, and this server takes signed models only.",
                hint="Add it with its signature:  homeport models add REF --digest … --signature FILE",
            )

    async def judged(self, entry: ModelEntry) -> ModelEntry:
        """With its signatures verified now. Raises UntrustedArtifact, and what its registry raises where it is asked
        for a signature that is needed."""
        policy = self.policy_of(entry)
        entry = replace(entry, signatures=tuple(self._verified(entry, each) for each in entry.signatures))
        if self.keys and policy.needs_signature and not is_signed(entry):
            entry = await self._signed_in_registry(entry)
        judge_trust(entry, policy)
        return entry

    def _verified(self, entry: ModelEntry, claimed: Mapping[str, Any]) -> Mapping[str, Any]:
        signature = str(claimed.get("signature") or "")
        signer = self._signer(signature, entry.digest) if signature and entry.digest else None
        if signer is None:
            return {**claimed, "verified": False}
        return {**claimed, "verified": True, "signer": signer, "algo": ALGORITHM}

    def _signer(self, signature: str, digest: str) -> str | None:
        return next((name for name, key in self.keys if signs_digest(signature, Digest(digest), key)), None)

    async def _signed_in_registry(self, entry: ModelEntry) -> ModelEntry:
        """A signature that cosign has put beside the artifact of the model covers its digest as well."""
        reference = parse_reference(entry.source) if entry.source else None
        if reference is None or reference.scheme is not Scheme.OCI:
            return entry
        repository = f"oci://{reference.place}"
        manifest = await self._manifest(repository, reference.revision)
        model, digest = model_in(manifest, reference.text), digest_of_bytes(manifest)
        if entry.digest and model.digest != entry.digest:
            raise DigestMismatch(f"{reference.text} has a model with the digest {model.digest}, not {entry.digest}.")
        try:
            artifact = await self.registry.pull(repository, signature_tag(digest))
        except NotFound:
            return entry
        for name, key in self.keys:
            if is_signed_artifact(artifact, digest, [key]):
                found = {"signer": name, "algo": ALGORITHM, "verified": True, "timestamp_ms": 0, "signature": ""}
                return replace(entry, digest=model.digest, signatures=(*entry.signatures, found))
        return entry

    async def _manifest(self, repository: str, tag: str) -> bytes:
        connection = self.registry.connection(parse_repository(repository, tag), "pull")
        headers = {"Accept": MANIFEST_TYPE}
        answer = await connection.request("GET", f"manifests/{tag}", headers=headers, size_max=MANIFEST_SIZE_MAX)
        return answer.body
