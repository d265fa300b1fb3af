"""Seals secrets with AES-256-GCM under a key in a file that only its owner can read.

The key file holds keys by number; new values are sealed with the newest, old ones still open until the older keys are
forgotten, so that a key can be changed without a moment in which something cannot be read. A sealed value begins with
the number of its key and a random nonce. The context is authenticated with it: a row copied over another's does not
open.
"""

import json
import os
import secrets
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from homeport.adapters.identity.files import sync_folder
from homeport.errors import InvalidInput, PermanentError, TransientError

KEY_FILE: Final = Path("identity") / "vault.key"
"""Below a role's data folder."""
_FORMAT: Final = b"\x01"
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_HEAD: Final = 1 + 4 + _NONCE_BYTES


class FileVault:
    """`ports.Vault` on keys from a file."""

    def __init__(self, path: Path, keys: dict[int, bytes]) -> None:
        self._path = path
        self._keys = keys
        self._forgotten: dict[int, bytes] = {}
        """No longer on the disk; for what a reader took from the store just before."""

    @property
    def key_number(self) -> int:
        return max(self._keys)

    def seal(self, plain: bytes, *, context: str) -> bytes:
        head = _FORMAT + self.key_number.to_bytes(4, "big") + secrets.token_bytes(_NONCE_BYTES)
        cipher = AESGCM(self._keys[self.key_number])
        return head + cipher.encrypt(head[-_NONCE_BYTES:], plain, _authenticated(head, context))

    def open(self, sealed: bytes, *, context: str) -> bytes:
        head, body = sealed[:_HEAD], sealed[_HEAD:]
        number = int.from_bytes(head[1:5], "big")
        key = self._keys.get(number) or self._forgotten.get(number)
        if len(head) < _HEAD or head[:1] != _FORMAT or key is None:
            raise InvalidInput("This was not sealed with any key of this vault.")
        try:
            return AESGCM(key).decrypt(head[-_NONCE_BYTES:], body, _authenticated(head, context))
        except InvalidTag as error:
            raise InvalidInput("This was not sealed here, or not for this place.") from error

    def rotate(self) -> int:
        """Adds a key and seals with it from now on. What is sealed with older ones still opens; seal it anew."""
        # On the disk before anything is sealed with it: else a crash would take what was.
        self._replace({**self._keys, self.key_number + 1: secrets.token_bytes(_KEY_BYTES)})
        return self.key_number

    def forget_older(self) -> None:
        """Deletes every key but the newest from the disk."""
        older = {number: key for number, key in self._keys.items() if number != self.key_number}
        self._forgotten.update(older)
        self._replace({self.key_number: self._keys[self.key_number]})

    def _replace(self, keys: dict[int, bytes]) -> None:
        try:
            _write(self._path, keys)
        except OSError as error:
            raise TransientError(
                f"The key of the vault, {self._path}, cannot be written: {error.strerror}.",
                hint="Make room, or the folder writable, and try again; every secret can still be read.",
            ) from error
        self._keys = keys


def open_vault(path: Path) -> FileVault:
    """Makes the key at the first call. Raises PermanentError for a key file that cannot be used."""
    try:
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(path, {1: secrets.token_bytes(_KEY_BYTES)})
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
        return FileVault(path, _read(path))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PermanentError(
            f"The key of the vault, {path}, cannot be used: {type(error).__name__}.",
            hint="Put it back from a backup; without it the secrets sealed with it must be set again.",
        ) from error


def _authenticated(head: bytes, context: str) -> bytes:
    return head + context.encode()


def _read(path: Path) -> dict[int, bytes]:
    keys = {
        int(number): b64decode(key, validate=True) for number, key in json.loads(path.read_text())["keys"].items()
    }
    if not keys or any(len(key) != _KEY_BYTES for key in keys.values()):
        raise ValueError("a key has the wrong length")
    return keys


def _write(path: Path, keys: dict[int, bytes]) -> None:
    """Whole or not at all, and never readable by others, not even for a moment."""
    content = json.dumps({"keys": {str(number): b64encode(key).decode() for number, key in keys.items()}})
    beginning = path.with_name(f"{path.name}.{os.getpid()}.new")
    beginning.unlink(missing_ok=True)
    with os.fdopen(os.open(beginning, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beginning.replace(path)
    sync_folder(path.parent)
