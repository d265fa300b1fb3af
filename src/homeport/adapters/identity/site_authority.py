"""A site's authority over its own nodes: an intermediate that central signed; it works without central."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from cryptography import x509

from homeport.adapters.identity import bundle as bundles
from homeport.adapters.identity.certificates import Signer, read_chain, to_der, view
from homeport.adapters.identity.files import PUBLIC, read_needed, write_whole
from homeport.adapters.identity.keys import load_key, load_or_create_key, make_csr
from homeport.adapters.identity.signing import issue_leaf, signer_of
from homeport.core.identity import spiffe
from homeport.core.model.identity import Issued, TrustBundle
from homeport.errors import InvalidInput, Refused


def open_site_authority(folder: Path, *, domain: str, site: str) -> "SiteAuthority | None":
    """A site's authority over its nodes; None until central has signed it (`request_site_authority`)."""
    if not (folder / "chain.pem").exists():
        return None
    return SiteAuthority(folder, domain=domain, site=site)


def request_site_authority(folder: Path, *, site: str) -> bytes:
    """The request for central, for the first certificate and each renewal. The key stays the same, so nodes' chains
    stay valid."""
    return make_csr(load_or_create_key(folder / "key.pem"), f"site {site}")


def install_site_authority(
    folder: Path, *, domain: str, site: str, chain: bytes, bundle: TrustBundle
) -> "SiteAuthority":
    """Installs the certificate that central signed, after checking that it matches the key and the name."""
    _read_intermediate(folder, chain, spiffe.site_authority_id(domain, site))
    write_whole(folder / "bundle.json", bundles.encode(bundle), mode=PUBLIC)
    write_whole(folder / "chain.pem", chain, mode=PUBLIC)
    return SiteAuthority(folder, domain=domain, site=site)


class SiteAuthority:
    """Implements `ports.Authority` for the nodes of one site, and for nothing else."""

    def __init__(self, folder: Path, *, domain: str, site: str) -> None:
        self.domain = domain
        self.site = site
        self.spiffe_id = spiffe.site_authority_id(domain, site)
        self._signer, self._chain = _read_intermediate(folder, read_needed(folder / "chain.pem"), self.spiffe_id)
        self._bundle = bundles.decode(read_needed(folder / "bundle.json"), domain)

    @property
    def not_before(self) -> datetime:
        return self._signer.certificate.not_valid_before_utc

    @property
    def not_after(self) -> datetime:
        return self._signer.certificate.not_valid_after_utc

    @property
    def anchors(self) -> tuple[bytes, ...]:
        """The anchors of this site's servers for nodes: the intermediate itself (DER)."""
        return (to_der(self._signer.certificate),)

    def issue(
        self, csr: bytes, *, spiffe_id: str, dns_names: Sequence[str] = (), lifetime_seconds: float, now: datetime
    ) -> Issued:
        spiffe.split(spiffe_id)
        if not spiffe.may_vouch(self.spiffe_id, spiffe_id):
            raise Refused(f"The authority of the site {self.site} signs for its own nodes only, not for {spiffe_id}.")
        return issue_leaf(
            self._signer,
            self._chain,
            csr,
            spiffe_id=spiffe_id,
            dns_names=dns_names,
            lifetime_seconds=lifetime_seconds,
            now=now,
        )

    def issue_intermediate(self, csr: bytes, *, spiffe_id: str, lifetime_seconds: float, now: datetime) -> Issued:
        raise Refused(f"The authority of the site {self.site} cannot make other authorities.")

    def bundle(self) -> TrustBundle:
        return self._bundle


def _read_intermediate(folder: Path, chain: bytes, spiffe_id: str) -> tuple[Signer, list[x509.Certificate]]:
    certificates = read_chain(chain, "The chain of the site's authority")
    seen = view(to_der(certificates[0]))
    if seen.uri_sans != (spiffe_id,) or not seen.is_ca:
        raise InvalidInput(f"This is not the certificate of the authority {spiffe_id}.")
    return signer_of(load_key(folder / "key.pem"), certificates[0], str(folder)), certificates
