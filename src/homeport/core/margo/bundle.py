"""The bundle: a gzip tar with exactly the YAML files of a manifest. Built reproducibly, read without trust."""

import gzip
import io
import tarfile
import zlib
from collections.abc import Mapping
from typing import Final

from homeport.core.margo.manifest import Manifest, digest_of
from homeport.errors import InvalidInput
from homeport.vocabulary import DeploymentId

UNPACKED_BYTES_MAX: Final = 256 * 1024 * 1024
"""Of all files together, twenty thousand of an average size; a bomb is stopped here."""


def pack(files: Mapping[DeploymentId, bytes]) -> bytes:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for deployment_id in sorted(files):
            entry = tarfile.TarInfo(f"{deployment_id}.yaml")
            entry.size, entry.mode, entry.mtime = len(files[deployment_id]), 0o644, 0
            archive.addfile(entry, io.BytesIO(files[deployment_id]))
    return gzip.compress(plain.getvalue(), mtime=0)


def unpack(content: bytes, manifest: Manifest) -> dict[DeploymentId, bytes]:
    """The files of a bundle by deployment, found by their digest; their names mean nothing. Raises InvalidInput
    unless it holds exactly what the manifest lists."""
    by_digest: dict[str, list[DeploymentId]] = {}
    for each in manifest.deployments:
        by_digest.setdefault(each.digest, []).append(each.deployment_id)
    found: dict[DeploymentId, bytes] = {}
    surplus = 0
    plain = _inflate(content)
    try:
        with tarfile.open(fileobj=io.BytesIO(plain), mode="r:") as archive:
            for entry in archive:
                if entry.isdir():
                    continue
                # A file with holes in it says any size, and reading it takes that much memory.
                is_whole = entry.isreg() and entry.size <= len(plain)
                file = archive.extractfile(entry) if is_whole else None
                body = b"" if file is None else file.read()
                owners = by_digest.get(digest_of(body)) if file is not None else None
                if not owners:
                    surplus += 1
                    continue
                found.update(dict.fromkeys(owners, body))
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
        raise InvalidInput(f"The bundle is not a readable archive: {error}.") from error
    if surplus or len(found) != len(manifest.deployments):
        missing = len(manifest.deployments) - len(found)
        raise InvalidInput(f"The bundle lacks {missing} listed deployments and has {surplus} other entries.")
    return found


def _inflate(content: bytes) -> bytes:
    inflater = zlib.decompressobj(wbits=31)
    try:
        plain = inflater.decompress(content, UNPACKED_BYTES_MAX)
    except zlib.error as error:
        raise InvalidInput(f"The bundle is not gzip: {error}.") from error
    if inflater.unconsumed_tail:
        raise InvalidInput(f"The bundle is larger than {UNPACKED_BYTES_MAX // 2**20} MiB when unpacked.")
    if not inflater.eof:
        raise InvalidInput("The bundle is cut short.")
    return plain
