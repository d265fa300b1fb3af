"""Model references: where a model comes from, as people write it. Pure.

    hf:org/repo[/path][@revision]    Hugging Face, or a mirror with the same routes
    file:/abs/path, ./relative       a file or folder of the machine that reads it
    https://host/path                any web server
    s3://bucket/key                  an S3-compatible store
    oci://host/name[:tag|@digest]    a registry, the built-in one for instance

Every path is checked before anything is opened: no reference may climb out of the place it names.
"""

import re
from enum import StrEnum
from typing import Final

from homeport.core.values.addresses import host_of, is_loopback
from homeport.errors import InvalidInput, Problem
from homeport.lazy_dataclass import dataclass

LENGTH_MAX: Final = 2048
DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
MODEL_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:-]{0,127}")
EXAMPLES: Final = (
    "Write hf:org/repo/file.gguf, a path such as ./model.gguf, https://host/model.gguf, s3://bucket/key or "
    "oci://host/name:tag ."
)
_HF: Final = re.compile(
    r"(?P<organization>[A-Za-z0-9][A-Za-z0-9._-]{0,95})/(?P<repository>[A-Za-z0-9][A-Za-z0-9._-]{0,95})"
    r"(?:/(?P<path>[^@\s]+?))?(?:@(?P<revision>[A-Za-z0-9][A-Za-z0-9._/-]{0,99}))?"
)
_S3: Final = re.compile(r"(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/(?P<key>\S+)")
_OCI: Final = re.compile(
    r"(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]{1,5})?|\[[0-9a-fA-F:]+\](?::[0-9]{1,5})?)/"
    r"(?P<name>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_WEB: Final = re.compile(r"(?P<host>[^\s/?#@]{1,255})(?P<path>/[^\s#]*)")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,19}):(.*)", re.DOTALL)


class Scheme(StrEnum):
    HF = "hf"
    FILE = "file"
    HTTPS = "https"
    S3 = "s3"
    OCI = "oci"


WEB_SCHEMES: Final = frozenset({Scheme.HF, Scheme.HTTPS, Scheme.S3})
"""One file on a web server; a registry has manifests too."""


@dataclass(frozen=True, slots=True)
class ModelReference:
    scheme: Scheme
    text: str
    """In full, in one spelling: two references are equal when their texts are."""
    place: str
    """The organization/repository, folder or host, bucket, registry/name: what is asked."""
    path: str
    """The file there; empty where the place itself is meant."""
    revision: str = ""
    """Of a repository: a branch, tag, commit or digest; empty for its default."""

    @property
    def host(self) -> str:
        """Of a web server or a registry."""
        return host_of(self.place.partition("://")[2] if "://" in self.place else self.place.partition("/")[0])

    @property
    def file_name(self) -> str:
        return (self.path or self.place).split("?")[0].rstrip("/").rpartition("/")[2]


def parse_reference(text: str, *, field: str = "model_ref") -> ModelReference:
    """Raises InvalidInput. A text without a scheme is a path."""
    if not text or len(text) > LENGTH_MAX or not text.isprintable():
        raise _refused(field, f"must be printable text of at most {LENGTH_MAX} characters")
    match = _SCHEME.fullmatch(text)
    scheme, rest = (match[1].lower(), match[2]) if match else ("file", text)
    if scheme in ("http", "https"):
        return _web(field, scheme, rest)
    parsers = {"hf": _hf, "file": _file, "s3": _s3, "oci": _oci}
    if scheme not in parsers:
        raise _refused(field, f'"{scheme}:" is not a kind of model reference')
    return parsers[scheme](field, rest)


def default_model_id(reference: ModelReference) -> str:
    """The name of the file, as people call it: `TinyLlama-Q4.gguf` gives `tinyllama-q4`."""
    bare = re.sub(r"\.(gguf|safetensors|bin)$", "", reference.file_name, flags=re.IGNORECASE)
    bare = re.sub(r"-0*1-of-\d+$", "", bare)
    name = re.sub(r"[^a-z0-9._-]+", "-", bare.lower()).strip("-._")[:63].strip("-._")
    return name or "model"


def check_model_id(text: str) -> str:
    """Raises InvalidInput. An id is also the name of a folder, so it has no separators."""
    if not MODEL_ID.fullmatch(text) or ".." in text:
        message = "must be letters, digits and . _ @ : - , at most 128, and begin with a letter or digit"
        raise InvalidInput(problems=[Problem("id", message)])
    return text


def check_digest(text: str, *, field: str = "digest") -> str:
    """Raises InvalidInput."""
    if not DIGEST.fullmatch(text):
        raise InvalidInput(problems=[Problem(field, "must be sha256: and 64 hexadecimal digits, in lower case")])
    return text


def _hf(field: str, rest: str) -> ModelReference:
    match = _HF.fullmatch(rest.removeprefix("//"))
    if match is None or not _is_plain_path(match["path"] or "x"):
        raise _refused(field, f'"hf:{rest}" is not organization/repository with a file')
    place, path, revision = f"{match['organization']}/{match['repository']}", match["path"] or "", match["revision"]
    text = f"hf:{place}" + (f"/{path}" if path else "") + (f"@{revision}" if revision else "")
    return ModelReference(Scheme.HF, text, place, path, revision or "")


def _file(field: str, rest: str) -> ModelReference:
    """A relative path may begin with `..`: it is a person's own, and is made absolute before it is kept."""
    path = rest.removeprefix("//") if rest.startswith("///") else rest
    if not path or path.endswith("/..") or "\0" in path:
        raise _refused(field, "names no file")
    return ModelReference(Scheme.FILE, f"file:{path}", path.rpartition("/")[0], path)


def _web(field: str, scheme: str, rest: str) -> ModelReference:
    match = _WEB.fullmatch(rest.removeprefix("//")) if rest.startswith("//") else None
    if match is None:
        raise _refused(field, f'"{scheme}:{rest}" is not the address of a file, without a login')
    if scheme == "http" and not is_loopback(host_of(match["host"])):
        raise _refused(field, "must begin with https:// ; plain http is only for this machine itself")
    return ModelReference(Scheme.HTTPS, f"{scheme}:{rest}", f"{scheme}://{match['host']}", match["path"])


def _s3(field: str, rest: str) -> ModelReference:
    match = _S3.fullmatch(rest.removeprefix("//")) if rest.startswith("//") else None
    if match is None or not _is_plain_path(match["key"]):
        raise _refused(field, f'"s3:{rest}" is not s3://BUCKET/KEY')
    return ModelReference(Scheme.S3, f"s3:{rest}", match["bucket"], match["key"])


def _oci(field: str, rest: str) -> ModelReference:
    match = _OCI.fullmatch(rest.removeprefix("//")) if rest.startswith("//") else None
    if match is None:
        raise _refused(field, f'"oci:{rest}" is not oci://HOST/NAME:TAG')
    revision = match["digest"] or match["tag"] or "latest"
    place = f"{match['host']}/{match['name']}"
    mark = "@" if match["digest"] else ":"
    return ModelReference(Scheme.OCI, f"oci://{place}{mark}{revision}", place, "", revision)


def _is_plain_path(path: str) -> bool:
    return not path.startswith("/") and all(part not in ("", ".", "..") for part in path.split("/"))


def _refused(field: str, message: str) -> InvalidInput:
    return InvalidInput(problems=[Problem(field, message)], hint=EXAMPLES)
