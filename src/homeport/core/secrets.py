"""How a parameter refers to a secret, and which secrets a release needs. Pure; no value is ever stored here.

A parameter whose whole text is `secret://NAME` refers to the secret of that name at each site. Git, events, rows
and responses hold the reference; the value is added to the release only on its way from the site to the node. The
digest of a running component contains name and version, so that a changed secret is a changed component and the value
cannot be guessed from the digest.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Any, Final

from homeport.core.model.deployment import ComponentSpec, Release
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import SiteName

PREFIX: Final = "secret://"
NAME_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
VALUE_BYTES_MAX: Final = 64 * 1024
COUNT_MAX: Final = 1_000
"""Maximum number of secrets of one site."""
MASK: Final = "•••"
_MASKED_LENGTH_MIN: Final = 4
"""Shorter values occur in ordinary words; masking them would garble every sentence and hide nothing."""
_ESCAPED: Final = ('"', "\\", "/")
_EXTENSIONS: Final = "x-homeport-extensions"


@dataclass(frozen=True, slots=True)
class SecretValue:
    """A secret's value in transit; repr and str never show it."""

    version: int
    value: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class SecretsThere:
    """A site's secrets at central: every name with its version, and the values that the site does not have."""

    versions: Mapping[str, int]
    changed: Mapping[str, SecretValue] = field(default_factory=dict)


def reference(name: str) -> str:
    return PREFIX + name


def referenced(value: Any) -> str | None:
    """The name of the secret that a parameter's value refers to; None for a plain value."""
    return value.removeprefix(PREFIX) if isinstance(value, str) and value.startswith(PREFIX) else None


def is_name(text: str) -> bool:
    return re.fullmatch(NAME_PATTERN, text) is not None


def judge_value(value: str) -> str | None:
    """What is wrong with a secret's value, without quoting it; None when nothing."""
    if not value:
        return "must not be empty."
    if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
        return "has a character that cannot be passed on."
    if len(value.encode()) > VALUE_BYTES_MAX:
        return f"is larger than {VALUE_BYTES_MAX // 1024} KiB."
    return None


def names_in(values: Iterable[Any]) -> frozenset[str]:
    """The secrets that parameter values or an environment refer to."""
    return frozenset(name for value in values if (name := referenced(value)) is not None)


def needed(release: Release) -> frozenset[str]:
    return frozenset(name for part in release.components for name in names_in(part.environment.values()))


def missing(release: Release, versions: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(sorted(needed(release) - versions.keys()))


def versions_for(release: Release, versions: Mapping[str, int]) -> dict[str, int]:
    """The version of each secret that the release would get now."""
    return {name: versions[name] for name in sorted(needed(release)) if name in versions}


def filled(release: Release, values: Mapping[str, SecretValue]) -> Release:
    """The release as sent to a node. `values` has all secrets that it needs."""
    return replace(release, components=tuple(_filled(part, values) for part in release.components))


def plain_environment(spec: ComponentSpec) -> dict[str, str]:
    """A component's environment without its secrets."""
    return {name: value for name, value in spec.environment.items() if referenced(value) is None}


def secret_environment(spec: ComponentSpec) -> dict[str, str]:
    """The variables that hold secrets, with their values. Secrets that go to files are not included."""
    in_files = set(_files(spec).values())
    return {name: value for name, value in _revealed(spec).items() if name not in in_files}


def secret_files(spec: ComponentSpec) -> dict[str, str]:
    """Paths inside the containers, each with the secret to mount there.

    `x-homeport-extensions: {secrets: {files: {/run/secrets/db: DB_PASSWORD}}}` of a component makes the secret of the
    variable DB_PASSWORD a file instead of a variable.
    """
    revealed = _revealed(spec)
    return {path: revealed[variable] for path, variable in _files(spec).items() if variable in revealed}


def missing_values(spec: ComponentSpec) -> tuple[str, ...]:
    """The secrets whose values are missing from the component."""
    return tuple(sorted(names_in(spec.environment.values()) - spec.secret_values.keys()))


def secret_values(release: Release | None) -> frozenset[str]:
    """Every secret value in the release."""
    return frozenset(
        value for part in (release.components if release else ()) for value in part.secret_values.values()
    )


def masked(text: str, values: Iterable[str]) -> str:
    """`text` without any of the values. The programs we run may print their secrets."""
    for value in sorted(values, key=len, reverse=True):
        for form in _forms(value) if len(value) >= _MASKED_LENGTH_MIN else ():
            text = text.replace(form, MASK)
    return text


def _forms(value: str) -> tuple[str, ...]:
    """The value, its lines, and how programs write these in JSON: fields of a line of JSON are shown as they were
    meant, without the signs that hid a quote or a letter. Long ones first."""
    if value.isascii() and value.isprintable() and not any(sign in value for sign in _ESCAPED):
        return (value,)
    plain = {value, *(line for line in value.splitlines() if len(line) >= _MASKED_LENGTH_MIN)}
    written = {json.dumps(each, ensure_ascii=is_ascii)[1:-1] for each in plain for is_ascii in (True, False)}
    return tuple(sorted({*plain, *written, *(each.replace("/", "\\/") for each in written)}, key=len, reverse=True))


def _filled(part: ComponentSpec, values: Mapping[str, SecretValue]) -> ComponentSpec:
    names = sorted(names_in(part.environment.values()))
    if not names:
        return part
    return replace(
        part,
        secrets={name: values[name].version for name in names},
        secret_values={name: values[name].value for name in names},
    )


def _revealed(spec: ComponentSpec) -> dict[str, str]:
    return {
        variable: spec.secret_values[name]
        for variable, value in spec.environment.items()
        if (name := referenced(value)) is not None and name in spec.secret_values
    }


def _files(spec: ComponentSpec) -> dict[str, str]:
    ours = spec.extensions.get(_EXTENSIONS)
    section = ours.get("secrets") if isinstance(ours, Mapping) else None
    files = section.get("files") if isinstance(section, Mapping) else None
    if not isinstance(files, Mapping):
        return {}
    return {str(path): str(variable) for path, variable in files.items() if str(path).startswith("/")}


def secret_context(site: SiteName, name: str) -> str:
    """The context that an encrypted secret is bound to (additional authenticated data)."""
    return f"secret/{site}/{name}"
