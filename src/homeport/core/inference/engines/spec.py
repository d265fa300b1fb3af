"""What a component that is an inference engine says of itself, in the section `engine` of its extensions. Pure.

    x-homeport-extensions:
      engine: {engine: llamacpp, mode: package, model: hf:org/repo/file.gguf, device: gpu, slots: 4}

Parameters of the app reach it as variables of the component (`MODEL`, `DEVICE`, …), and override the section: so one
description serves every model. The catalog judges the section with its line; the node judges the whole.
"""

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from enum import StrEnum
from typing import Any, Final

from homeport.core.inference.engines.handoff import (
    API_KEY_PATTERN,
    CTX_MAX,
    IDLE_SECONDS_MAX,
    POOL_ID_PATTERN,
    REPLICAS_MAX,
    SLOTS_MAX,
    URL_PATTERN,
    EngineName,
)
from homeport.core.inference.models.references import DIGEST, default_model_id, parse_reference
from homeport.core.parameters import listing, show, suggest
from homeport.errors import InvalidInput
from homeport.lazy_dataclass import dataclass

CONTEXT_DEFAULT: Final = 4096
PORT_MIN: Final = 1024
FLAGS_MAX: Final = 64
FLAG_LENGTH_MAX: Final = 500
IMAGE: Final = re.compile(r"[a-z0-9][A-Za-z0-9./_:@-]{0,399}")
_REVISION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]{0,127}")
_REPOSITORY: Final = re.compile(
    r"(https?|ssh|git|file)://[^\s]{1,500}|/[^\s]{1,500}|[A-Za-z0-9_.-]+@[^\s:]+:[^\s]{1,500}"
)
_MASK: Final = re.compile(r"[0-9]{1,3}(,[0-9]{1,3}){0,15}")

Found = tuple[tuple[str | int, ...], str]
"""The location below the section, and the problem there."""


class Mode(StrEnum):
    """How the engine gets onto the machine."""

    EXTERNAL = "external"
    """It runs already; only its address is taken in."""
    PACKAGE = "package"
    """A package of this Python installation."""
    BINARY = "binary"
    """A program of the machine, or one fetched by its checksum."""
    CONTAINER = "container"
    SOURCE = "source"
    """Built on the machine."""


class ComputeDevice(StrEnum):
    GPU = "gpu"
    CPU = "cpu"
    """Only where a user has allowed it: a model on a CPU is slow, and looks like a fault."""


DEFAULT_MODE: Final[Mapping[EngineName, Mode]] = {
    EngineName.LLAMACPP: Mode.PACKAGE,
    EngineName.VLLM: Mode.CONTAINER,
    EngineName.TGI: Mode.CONTAINER,
    EngineName.OLLAMA: Mode.CONTAINER,
    EngineName.TRITON: Mode.EXTERNAL,
    EngineName.OPENAI: Mode.EXTERNAL,
}
MODES: Final[Mapping[EngineName, tuple[Mode, ...]]] = {
    EngineName.LLAMACPP: tuple(Mode),
    EngineName.VLLM: (Mode.CONTAINER, Mode.EXTERNAL),
    EngineName.TGI: (Mode.CONTAINER, Mode.EXTERNAL),
    EngineName.OLLAMA: (Mode.CONTAINER, Mode.BINARY, Mode.EXTERNAL),
    EngineName.TRITON: (Mode.EXTERNAL,),
    EngineName.OPENAI: (Mode.EXTERNAL,),
}
PREFERRED_PORT: Final[Mapping[EngineName, int]] = {EngineName.OLLAMA: 11434, EngineName.VLLM: 8000}
FIRST_PORT: Final = 8100


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """Empty text and 0 mean that nothing was said."""

    engine: EngineName
    mode: Mode
    model: str = ""
    digest: str = ""
    model_id: str = ""
    pool: str = ""
    """Empty: the deployment's name."""
    device: ComputeDevice = ComputeDevice.GPU
    device_mask: str = ""
    context: int = CONTEXT_DEFAULT
    slots: int = 1
    port: int = 0
    min_replicas: int = 0
    idle_seconds: int = 0
    """After so long without use it is unloaded, and loaded again when it is asked; 0: never."""
    flags: tuple[str, ...] = ()
    image: str = ""
    url: str = ""
    api_key: str = field(default="", repr=False)
    """Of an engine that runs elsewhere and asks for one; a reference to a secret until it reaches the node."""
    binary: str = ""
    """A program's path, its name on the PATH, or the https:// address of a program or a release archive with its
    checksum."""
    checksum: str = ""
    repository: str = ""
    """A Git repository, or the https:// address of an archive of source code with its checksum."""
    revision: str = ""
    build: str = ""
    """The command that builds it, in the folder that has `source`; it makes build/bin/PROGRAM. Empty: CMake."""

    @property
    def context_max(self) -> int:
        """0 where the engine itself says it: one that runs already is not limited by our default."""
        return 0 if self.mode is Mode.EXTERNAL and self.context == CONTEXT_DEFAULT else self.context

    @property
    def preferred_port(self) -> int:
        return self.port or PREFERRED_PORT.get(self.engine, FIRST_PORT)

    @property
    def fetches_binary(self) -> bool:
        return self.mode is Mode.BINARY and is_address(self.binary)

    @property
    def source_is_archive(self) -> bool:
        return self.mode is Mode.SOURCE and is_address(self.repository) and self.repository.endswith(ARCHIVES)

    @property
    def served_model_id(self) -> str:
        if self.model_id:
            return self.model_id
        return self.model if self.engine in BY_NAME else default_model_id(parse_reference(self.model))


ARCHIVES: Final = (".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".zip")


def is_address(text: str) -> bool:
    return text.startswith(("https://", "http://"))


BY_NAME: Final = (EngineName.OLLAMA, EngineName.VLLM, EngineName.TGI)
"""Engines that fetch a model themselves, by the name that their own hub knows it by."""
_MODEL_TEXTS: Final = ("model", "digest", "model_id", "pool", "device_mask")
TEXTS: Final = (*_MODEL_TEXTS, "image", "url", "api_key", "binary", "checksum", "repository", "revision", "build")
NUMBERS: Final[Mapping[str, tuple[int, int]]] = {
    "context": (1, CTX_MAX),
    "slots": (1, min(SLOTS_MAX, 256)),
    "port": (PORT_MIN, 65_535),
    "min_replicas": (0, REPLICAS_MAX),
    "idle_seconds": (0, IDLE_SECONDS_MAX),
}
FIELDS: Final = ("engine", "mode", "device", "flags", *TEXTS, *NUMBERS)
VARIABLES: Final[Mapping[str, str]] = {
    "ENGINE_MODE": "mode",
    "MODEL": "model",
    "MODEL_DIGEST": "digest",
    "MODEL_ID": "model_id",
    "POOL": "pool",
    "DEVICE": "device",
    "DEVICE_MASK": "device_mask",
    "CONTEXT": "context",
    "SLOTS": "slots",
    "PORT": "port",
    "MIN_REPLICAS": "min_replicas",
    "IDLE_SECONDS": "idle_seconds",
    "ENGINE_FLAGS": "flags",
    "ENGINE_IMAGE": "image",
    "ENGINE_URL": "url",
    "ENGINE_API_KEY": "api_key",
    "ENGINE_BINARY": "binary",
    "ENGINE_CHECKSUM": "checksum",
    "ENGINE_REPOSITORY": "repository",
    "ENGINE_REVISION": "revision",
    "ENGINE_BUILD": "build",
}
"""Variables of the component that override a field. All others are the engine's own environment."""


def judge_engine(section: Any) -> list[Found]:
    """The problems of a section alone: what parameters give may still be missing."""
    return _read(section)[1]


def read_engine(section: Any, environment: Mapping[str, str]) -> EngineSpec:
    """The section with the variables over it. Raises InvalidInput with all that is wrong or missing."""
    merged = dict(section) if isinstance(section, Mapping) else {}
    for name, key in VARIABLES.items():
        value = environment.get(name, "")
        if value:
            merged[key] = _typed(key, value)
    spec, found = _read(merged)
    problems = [f"{'.'.join(map(str, where)) or 'engine'} {message}" for where, message in found]
    problems += _incomplete(spec) if not problems else []
    if problems:
        raise InvalidInput(f"The engine is not described completely: {' '.join(problems)}")
    return spec


def own_environment(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in VARIABLES}


def _typed(key: str, value: str) -> Any:
    if key in NUMBERS and value.isascii() and value.isdecimal():
        return int(value[:9])
    return value.split() if key == "flags" else value


def _read(section: Any) -> tuple[EngineSpec, list[Found]]:
    found: list[Found] = []
    given: Mapping[str, Any] = section if isinstance(section, Mapping) else {}
    if not isinstance(section, Mapping):
        found.append(((), "must be a mapping (name: value)."))
    for key in given:
        if key not in FIELDS:
            message = f"is not a field here; there are {listing(list(FIELDS))}.{suggest(str(key), list(FIELDS))}"
            found.append(((str(key),), message))
    engine = _engine(given, found)
    mode = _one_of(given, "mode", Mode, DEFAULT_MODE[engine], found)
    if mode not in MODES[engine]:
        offered = listing([each.value for each in MODES[engine]])
        found.append((("mode",), f"{mode.value} is not a mode of {engine.value}; there are {offered}."))
    texts: dict[str, Any] = {key: _text(given, key, found) for key in TEXTS}
    spec = EngineSpec(
        engine=engine,
        mode=mode,
        device=_one_of(given, "device", ComputeDevice, ComputeDevice.GPU, found),
        flags=_flags(given, found),
        **texts,
    )
    numbers: dict[str, Any] = {key: _number(given, key, getattr(spec, key), found) for key in NUMBERS}
    spec = replace(spec, **numbers)
    return spec, found + _texts(spec)


def _engine(given: Mapping[str, Any], found: list[Found]) -> EngineName:
    known = [each.value for each in DEFAULT_MODE]
    value = given.get("engine")
    if value not in known:
        said = "" if value is None else f", not {show(str(value))}.{suggest(str(value), known)}"
        found.append((("engine",), f"must be one of {listing(known)}{said}"))
        return EngineName.LLAMACPP
    return EngineName(value)


def _one_of(given: Mapping[str, Any], key: str, kind: Any, default: Any, found: list[Found]) -> Any:
    value = given.get(key)
    if value is None:
        return default
    known = [each.value for each in kind]
    if value not in known:
        found.append(((key,), f"must be one of {listing(known)}, not {show(str(value))}."))
        return default
    return kind(value)


def _text(given: Mapping[str, Any], key: str, found: list[Found]) -> str:
    value = given.get(key)
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > 2048 or not value.isprintable():
        found.append(((key,), "must be printable text; put numbers in quotes."))
        return ""
    return value


def _number(given: Mapping[str, Any], key: str, default: int, found: list[Found]) -> int:
    value, (low, high) = given.get(key), NUMBERS[key]
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        found.append(((key,), f"must be a whole number from {low} to {high}."))
        return default
    return value


def _flags(given: Mapping[str, Any], found: list[Found]) -> tuple[str, ...]:
    value = given.get("flags")
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or len(value) > FLAGS_MAX or not all(_is_flag(each) for each in value):
        found.append((("flags",), f"must be a list of at most {FLAGS_MAX} texts; put numbers in quotes."))
        return ()
    return tuple(value)


def _is_flag(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= FLAG_LENGTH_MAX and value.isprintable()


def _texts(spec: EngineSpec) -> list[Found]:
    """What is said must have its form; what is not said may come from a parameter."""
    found: list[Found] = []
    if spec.model and spec.engine not in BY_NAME:
        try:
            parse_reference(spec.model)
        except InvalidInput as error:
            found.append((("model",), f"{error.problems[0].message}. {error.hint}"))
    forms: dict[str, tuple[Callable[[str], object], str]] = {
        "digest": (DIGEST.fullmatch, "must be sha256: and 64 hexadecimal digits."),
        "checksum": (DIGEST.fullmatch, "must be sha256: and 64 hexadecimal digits."),
        "model_id": (re.compile(r"\S{1,128}").fullmatch, "must be one word of at most 128 characters."),
        "pool": (re.compile(POOL_ID_PATTERN).match, "is not a valid pool id."),
        "device_mask": (_MASK.fullmatch, 'must be numbers of GPUs, as in "0" or "0,1".'),
        "url": (re.compile(URL_PATTERN).match, "must be an http:// or https:// address of an engine."),
        "api_key": (re.compile(API_KEY_PATTERN).fullmatch, "must be printable ASCII without spaces."),
        "revision": (_REVISION.fullmatch, "must be a branch, tag or commit."),
        "repository": (_REPOSITORY.fullmatch, "must be the address of a Git repository or of an archive."),
        "build": (_is_command, "must be a command, as in  make -C source ."),
        "image": (IMAGE.fullmatch, "is not an image: it is written as in registry.example/team/app:1.0.0."),
    }
    for key, (fits, message) in forms.items():
        value = getattr(spec, key)
        if value and not fits(value):
            found.append(((key,), message))
    if spec.api_key and spec.mode is not Mode.EXTERNAL:
        found.append((("api_key",), "is for an engine that runs already (mode external)."))
    if (spec.fetches_binary or spec.source_is_archive) and not spec.checksum:
        found.append((("checksum",), "is needed with a program or source code from the network."))
    fetched = {"binary": spec.binary} if spec.fetches_binary else {}
    fetched |= {"repository": spec.repository} if spec.source_is_archive else {}
    for key, address in fetched.items():
        try:
            parse_reference(address)
        except InvalidInput as error:
            found.append(((key,), f"{error.problems[0].message}."))
    return found


def _is_command(text: str) -> bool:
    try:
        return bool(shlex.split(text))
    except ValueError:
        return False


def _incomplete(spec: EngineSpec) -> list[str]:
    missing = []
    if spec.mode is Mode.EXTERNAL:
        if not spec.url:
            missing.append("url is needed for an engine that runs already.")
        if not spec.model_id and not spec.model:
            missing.append("model_id is needed: the name that the engine serves its model by.")
    elif not spec.model:
        missing.append("model is not given: set it, as in hf:org/repo/file.gguf.")
    return missing
