"""An authority that is not ours, as SPIRE is one: it writes `svid-*.pem` into the folders of machines, makes a new
key at every renewal, and changes its root when it likes."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from homeport.core.identity import spiffe
from tests.support.certificates import Made, forge, forge_root, write_files

DOMAIN, WFM = "plant.example", "hq"
CENTRAL = spiffe.central_id(DOMAIN, WFM)


def site_id(site: str = "north") -> str:
    return spiffe.client_id(DOMAIN, WFM, site)


def node_id(node: str = "n1", site: str = "north") -> str:
    return spiffe.node_id(DOMAIN, site, node)


class ForeignAuthority:
    """A root and, below it, an intermediate that signs, as SPIRE's servers do it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, str] = {}
        self.anchors: list[Made] = []
        self.new_root("first")

    def new_root(self, name: str) -> None:
        """Trusted beside the old ones from the next writing on; signs from now on."""
        root = forge_root(DOMAIN, name=name)
        self.anchors.append(root)
        self._signer = forge(root, uris=[f"spiffe://{DOMAIN}"], name=f"{name} signer", is_ca=True)

    def forget_old_roots(self) -> None:
        self.anchors = self.anchors[-1:]

    def issue(self, machine: str, spiffe_id: str, *, ends: timedelta = timedelta(hours=1)) -> Path:
        """The folder of the machine, with a new certificate for a new key."""
        self._held[machine] = spiffe_id
        leaf = forge(self._signer, uris=[spiffe_id], name=machine, ends=ends)
        return write_files(self._folder / machine, leaf, above=[self._signer], anchors=self.anchors)

    def renew_all(self) -> None:
        for machine, spiffe_id in self._held.items():
            self.issue(machine, spiffe_id)

    def announce(self, machines: Sequence[str] = ()) -> None:
        """Tells the machines of the anchors without new certificates for them."""
        for machine in machines or self._held:
            path = self._folder / machine / "svid-ca.pem"
            other = write_files(self._folder / ".scratch", forge(self._signer), anchors=self.anchors)
            path.with_name("ca.new").write_bytes((other / "svid-ca.pem").read_bytes())
            path.with_name("ca.new").replace(path)
