"""The bodies of `/v2/catalog/models`."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from homeport.serving.bodies.body import Body

Text = Annotated[str, StringConstraints(max_length=2048)]
Short = Annotated[str, StringConstraints(max_length=128)]


class ManifestBody(Body):
    digest: Short
    size_bytes: Annotated[int, Field(ge=0, le=2**53)] = 0


class SignatureBody(Body):
    signer: Short = ""
    algo: Short = ""
    verified: bool = False
    timestamp_ms: Annotated[int, Field(ge=0, le=2**53)] = 0
    signature: Text = ""
    """In base64, of the file with the model's digest, as  cosign sign-blob  makes it. `verified` of a request is not
    believed; of an answer it says that a key of this server (--model-key) verified it."""


class SbomBody(Body):
    uri: Text
    digest: Short = ""


class TrustPolicyBody(Body):
    mode: Literal["strict", "permissive"] = "permissive"
    allowed_registries: Annotated[Sequence[Short], Field(max_length=64)] = ()
    require_signature: bool = False
    require_sbom: bool = False
    ca_roots: Annotated[Sequence[Text], Field(max_length=16)] = ()


class OnRequestBody(Body):
    """The deployment that the first task for the model writes."""

    site: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
    app: Short
    """The app of its engine, which the catalog of apps must have."""
    version: Short
    engine: Short = "llamacpp"
    name: Annotated[str, StringConstraints(min_length=1, max_length=63)]
    """Of the deployment and its pool."""
    parameters: Annotated[Mapping[Short, Text], Field(max_length=32)]
    nodes: Annotated[Sequence[Short], Field(max_length=64)] = ()
    count: Annotated[int, Field(ge=1, le=1000)] = 1


class NewModel(Body):
    id: Short = ""
    digest: Short = ""
    source_url: Text = ""
    size_bytes: Annotated[int, Field(ge=0, le=2**53)] = 0
    tags: Annotated[Sequence[Short], Field(max_length=64)] = ()
    manifests: Annotated[Sequence[ManifestBody], Field(max_length=256)] = ()
    signatures: Annotated[Sequence[SignatureBody], Field(max_length=64)] = ()
    sbom: SbomBody | None = None
    trust_policy: TrustPolicyBody | None = None
    on_request: OnRequestBody | None = None
    """Serve it when the first task asks for it; else only what is deployed is served."""


class PullBody(Body):
    state: str
    """waiting, pulling, done or failed."""
    done_bytes: int
    total_bytes: int
    """0 while it is not known."""
    problem: str


class ModelBody(Body):
    id: str
    digest: str
    source_url: str
    size_bytes: int
    state: str
    tags: Sequence[str]
    manifests: Sequence[Mapping[str, Any]]
    signatures: Sequence[Mapping[str, Any]]
    sbom: Mapping[str, Any] | None
    trust_policy: TrustPolicyBody
    verification: str
    """passed, failed, unchecked, or empty before the first check."""
    last_verified_ms: int
    on_request: OnRequestBody | None = None
    warning: str | None = None
    pull: PullBody | None = None
    """To central's disk, since it was started."""


class ModelsBody(Body):
    models: Sequence[ModelBody]


class StateBody(Body):
    state: Short
    deadline_ms: Annotated[int, Field(ge=0, le=2**53)] | None = None
