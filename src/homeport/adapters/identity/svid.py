"""An identity in a folder: reading it, and replacing it atomically."""

from dataclasses import field
from pathlib import Path
from typing import Final

from homeport.adapters.identity import bundle as bundles
from homeport.adapters.identity.certificates import read_chain, to_der, view
from homeport.adapters.identity.files import PUBLIC, read_needed, write_whole
from homeport.adapters.identity.keys import key_pem, load_key
from homeport.adapters.identity.signing import signer_of
from homeport.core.identity import spiffe
from homeport.core.model.identity import CertificateView, TrustBundle
from homeport.errors import InvalidInput, Refused
from homeport.lazy_dataclass import dataclass

OURS: Final = ("key.pem", "chain.pem", "bundle.json")
THEIRS: Final = ("svid-key.pem", "svid-cert.pem", "svid-ca.pem")
"""The names that SPIRE's helper and other Margo tools use; these take precedence where both exist."""


@dataclass(frozen=True, slots=True)
class Svid:
    """The content of the folder at one moment: external tools replace the files one by one."""

    folder: Path
    key_pem: bytes = field(repr=False)
    chain_pem: bytes
    leaf: CertificateView
    spiffe_id: str
    bundle: TrustBundle
    anchors: tuple[CertificateView, ...]
    """Of the bundle."""


def is_there(folder: Path) -> bool:
    return any(all((folder / name).exists() for name in names) for names in (OURS, THEIRS))


def is_theirs(folder: Path) -> bool:
    return all((folder / name).exists() for name in THEIRS)


def load(folder: Path, domain: str) -> Svid:
    theirs = is_theirs(folder)
    key, chain, trust = (folder / name for name in (THEIRS if theirs else OURS))
    content = read_needed(trust)
    try:
        bundle = _bundle_of_pem(content, domain) if theirs else bundles.decode(content, domain)
    except InvalidInput as error:
        raise InvalidInput(
            f"{trust} is damaged: {error}", hint="Restore it from a backup, or join this machine again."
        ) from error
    svid = _checked(key, chain, read_needed(chain), bundle)
    if theirs:
        _check_domain(svid)
    return svid


def install(folder: Path, chain_pem: bytes, bundle: TrustBundle) -> Svid:
    """The bundle is written first: after a crash, a chain without its anchor would be useless."""
    if is_theirs(folder):
        raise Refused(
            f"The identity in {folder} is managed by another program (svid-cert.pem).",
            hint="Renew it where it was issued, or move those files away.",
        )
    key, chain, trust = (folder / name for name in OURS)
    svid = _checked(key, chain, chain_pem, bundle)
    _check_domain(svid)
    write_whole(trust, bundles.encode(bundle), mode=PUBLIC)
    write_whole(chain, chain_pem, mode=PUBLIC)
    return svid


def _checked(key_path: Path, chain_path: Path, chain_pem: bytes, bundle: TrustBundle) -> Svid:
    certificates, folder = read_chain(chain_pem, str(chain_path)), key_path.parent
    key = load_key(key_path)
    signer_of(key, certificates[0], str(folder))
    leaf = view(to_der(certificates[0]))
    if len(leaf.uri_sans) != 1:
        raise InvalidInput(f"The certificate must have exactly one URI name; this one has {len(leaf.uri_sans)}.")
    if not bundle.anchors or not all(view(anchor).is_ca for anchor in bundle.anchors):
        raise InvalidInput("The trust bundle has no X.509 anchor, or one that is not an authority.")
    anchors = tuple(map(view, bundle.anchors))
    return Svid(folder, key_pem(key), chain_pem, leaf, leaf.uri_sans[0], bundle, anchors)


def _check_domain(svid: Svid) -> None:
    """Externally managed files may belong to another fleet."""
    domain, _ = spiffe.split(svid.spiffe_id)
    if domain != svid.bundle.domain:
        raise InvalidInput(f"{svid.spiffe_id} belongs to the trust domain {domain}; ours is {svid.bundle.domain}.")


def _bundle_of_pem(content: bytes, domain: str) -> TrustBundle:
    anchors = tuple(to_der(certificate) for certificate in read_chain(content, "The file of authorities"))
    return TrustBundle(domain, 0, bundles.REFRESH_HINT_SECONDS, anchors)
