"""How a parameter names a secret, and which secrets a release needs. Pure, and never shown a value it would keep.

A parameter whose whole text is `secret://NAME` stands for the secret of that name at each site. Git, events, rows
and answers hold the reference; the value joins the release only on its way from the site to the node. What a running
component was made of is told by name and version, so that a changed secret is a changed component and nobody can
guess the value from its digest.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from homeport.core.model.deployment import ComponentSpec, Release
from homeport.vocabulary import SiteName

PREFIX: Final = "secret://"
NAME_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
VALUE_BYTES_MAX: Final = 64 * 1024
COUNT_MAX: Final = 1_000
"""Secrets of one site."""
MASK: Final = "•••"
_MASKED_LENGTH_MIN: Final = 4
"""Shorter values stand in ordinary words; masking them would spoil every sentence and hide nothing."""
_EXTENSIONS: Final = "x-homeport-extensions"


@dataclass(frozen=True, slots=True)
class SecretValue:
    """A value on its way, which no representation shows."""

    version: int
    value: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class SecretsThere:
    """What central has for a site: every name with its version, and the values that the site does not have."""

    versions: Mapping[str, int]
    changed: Mapping[str, SecretValue] = field(default_factory=dict)


def reference(name: str) -> str:
    return PREFIX + name


def referenced(value: Any) -> str | None:
    """The name that a parameter's value refers to; None for a value that stands for itself."""
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
    """Which version of each secret the release would be given now."""
    return {name: versions[name] for name in sorted(needed(release)) if name in versions}


def filled(release: Release, values: Mapping[str, SecretValue]) -> Release:
    """The release as a node gets it. `values` has all that it needs."""
    return replace(release, components=tuple(_filled(part, values) for part in release.components))


def plain_environment(spec: ComponentSpec) -> dict[str, str]:
    """The plain part of a component's environment: all but the secrets."""
    return {name: value for name, value in spec.environment.items() if referenced(value) is None}


def secret_environment(spec: ComponentSpec) -> dict[str, str]:
    """The variables that hold secrets, with their values. Those that go to files are not among them."""
    in_files = set(_files(spec).values())
    return {name: value for name, value in _revealed(spec).items() if name not in in_files}


def secret_files(spec: ComponentSpec) -> dict[str, str]:
    """Paths inside the containers, each with the secret to be read there.

    `x-homeport-extensions: {secrets: {files: {/run/secrets/db: DB_PASSWORD}}}` of a component says that the secret
    of the variable DB_PASSWORD is no variable but a file.
    """
    revealed = _revealed(spec)
    return {path: revealed[variable] for path, variable in _files(spec).items() if variable in revealed}


def lacking(spec: ComponentSpec) -> tuple[str, ...]:
    """The secrets whose values did not come with the component."""
    return tuple(sorted(names_in(spec.environment.values()) - spec.secret_values.keys()))


def secret_values(release: Release | None) -> frozenset[str]:
    """Every value that came with the release."""
    return frozenset(
        value for part in (release.components if release else ()) for value in part.secret_values.values()
    )


def masked(text: str, values: Iterable[str]) -> str:
    """`text` without any of the values. Programs that we run may print what they were given."""
    for value in sorted(values, key=len, reverse=True):
        if len(value) >= _MASKED_LENGTH_MIN:
            text = text.replace(value, MASK)
            for line in value.splitlines():
                text = text.replace(line, MASK) if len(line) >= _MASKED_LENGTH_MIN else text
    return text


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
    """What a sealed secret is bound to."""
    return f"secret/{site}/{name}"
