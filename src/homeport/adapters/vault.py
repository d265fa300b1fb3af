"""Encrypts secrets with AES-256-GCM under a key in a file that only its owner can read.

The key file holds numbered keys; new values are sealed with the newest, old ones can be opened until the older keys
are deleted, so that a key can be changed while everything stays readable. A sealed value begins with the number of
its key and a random nonce. The context is authenticated with it: a row copied over another cannot be opened.
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

KEY_NAME: Final = "vault.key"
KEY_FILE: Final = Path("identity") / KEY_NAME
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
        self._mark = _look(path)
        self._forgotten: dict[int, bytes] = {}
        """Deleted from the disk, but needed for values that were read from the store just before."""

    @property
    def key_number(self) -> int:
        return max(self._keys)

    def seal(self, plain: bytes, *, context: str) -> bytes:
        self._take_changes()
        head = _FORMAT + self.key_number.to_bytes(4, "big") + secrets.token_bytes(_NONCE_BYTES)
        cipher = AESGCM(self._keys[self.key_number])
        return head + cipher.encrypt(head[-_NONCE_BYTES:], plain, _authenticated(head, context))

    def open(self, sealed: bytes, *, context: str) -> bytes:
        self._take_changes()
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
        """Adds a key and seals with it from now on. Older keys still open; seal those values again."""
        self._take_changes()
        # On disk before anything is sealed with it: a crash must not lose it.
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
        self._keys, self._mark = keys, _look(self._path)

    def _take_changes(self) -> None:
        """Loads a key change of another process: sealing with a deleted key would lose the value."""
        mark = _look(self._path)
        if mark is None or mark == self._mark:
            return
        try:
            keys = _read(self._path)
        except (OSError, RecursionError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise TransientError(f"The key of the vault, {self._path}, cannot be read: {error!r}.") from error
        self._forgotten.update({number: key for number, key in self._keys.items() if number not in keys})
        self._keys, self._mark = keys, mark


def open_vault(path: Path) -> FileVault:
    """Creates the key at the first call. Raises PermanentError for an unusable key file."""
    try:
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(path, {1: secrets.token_bytes(_KEY_BYTES)})
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
        return FileVault(path, _read(path))
    except (OSError, RecursionError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PermanentError(
            f"The key of the vault, {path}, cannot be used: {type(error).__name__}.",
            hint="Put it back from a backup; without it the secrets sealed with it must be set again.",
        ) from error


def _look(path: Path) -> tuple[int, int] | None:
    """Changes when the file is replaced; None where it is gone, which keeps the keys in memory."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


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
    """Atomic, and never readable by others, not even for a moment."""
    content = json.dumps({"keys": {str(number): b64encode(key).decode() for number, key in keys.items()}})
    beginning = path.with_name(f"{path.name}.{os.getpid()}.new")
    beginning.unlink(missing_ok=True)
    with os.fdopen(os.open(beginning, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beginning.replace(path)
    sync_folder(path.parent)
