"""An app: one Margo application description at one version, as far as decisions need it."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import ProfileType

Value = str | int | float | bool | tuple[str | int | float | bool, ...]
"""What a parameter may hold: a scalar, or an array of scalars of one type."""


@dataclass(frozen=True, slots=True)
class ParameterTarget:
    """Where a parameter's value goes: for compose an environment variable of the named components."""

    pointer: str
    components: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    value: Value | None
    """The default; None when the description gives none, so that the caller must provide a value."""
    targets: tuple[ParameterTarget, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of `configuration.schema`: what a setting's value must look like."""

    name: str
    data_type: str
    allow_empty: bool = False
    min_length: int | None = None
    max_length: int | None = None
    regex_match: str | None = None
    min_value: float | None = None
    max_value: float | None = None
    min_precision: int | None = None
    max_precision: int | None = None
    multiselect: bool = False
    options: tuple[str | int | float | bool, ...] | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    parameter: str
    name: str
    rule: str
    """Name of the Rule that validates values of this setting."""
    immutable: bool = False


@dataclass(frozen=True, slots=True)
class Component:
    """One deployable part. `properties` is carried as given: repository, revision, wait, timeout."""

    name: str
    properties: Mapping[str, Any]
    extensions: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Profile:
    id: str
    type: ProfileType
    components: tuple[Component, ...]
    device_constraints: Mapping[str, Any] | None = None
    description: str = ""
    extensions: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class App:
    margo_id: str
    name: str
    version: str
    category: str
    vendor: str
    profiles: tuple[Profile, ...]
    parameters: tuple[Parameter, ...] = ()
    settings: tuple[Setting, ...] = ()
    rules: tuple[Rule, ...] = ()
    description: str = ""
    tags: tuple[str, ...] = ()
