"""The variables of a compose file, as the compose specification interpolates them, turned into parameters.

Pure. Only the compose tool replaces values; this module finds the variables, their defaults, and which of them are
required.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from homeport.adapters.files.bounded_yaml import Location
from homeport.content.importing.parameters import Offered
from homeport.errors import InvalidInput
from homeport.lazy_dataclass import dataclass

NESTED_MAX: Final = 20
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BRACED: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:(:?[-?+])(.*))?", re.DOTALL)
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,17}")
_PORT_NAME: Final = re.compile(r"(^|_)PORT$")
_NUMBER_NAME: Final = re.compile(r"(^|_)(PORT|COUNT|REPLICAS|WORKERS|THREADS|RETRIES|SECONDS|SIZE|LIMIT|MAX|MIN)$")
_SECRET_NAME: Final = re.compile(r"(?i)PASS(WORD|WD|PHRASE)?|SECRET|TOKEN|API_?KEY|PRIVATE_?KEY|CREDENTIAL")
_DOTENV: Final = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*")


@dataclass(frozen=True, slots=True)
class VariableReference:
    """One `${NAME…}`."""

    name: str
    operator: str = ""
    """`:-` or `-` before a default, `:?` or `?` before an error message, `:+` or `+` before a replacement; empty for
    the variable alone."""
    operand: str = ""


@dataclass(frozen=True, slots=True)
class Use:
    reference: VariableReference
    where: Location


def references(text: str, depth: int = 0) -> Iterator[VariableReference]:
    """Those of one text, and those inside their defaults. `$$` is a dollar sign, and `$5` is not a variable. Raises
    InvalidInput for defaults that no person nests so deeply."""
    if depth > NESTED_MAX:
        raise InvalidInput(f"A variable has defaults inside defaults, more than {NESTED_MAX} deep.")
    position = 0
    while (position := text.find("$", position)) >= 0:
        if text.startswith("$$", position):
            position += 2
            continue
        if text.startswith("${", position):
            end = _closing(text, position + 2)
            found = _BRACED.fullmatch(text[position + 2 : end])
            if found is not None:
                yield VariableReference(found[1], found[2] or "", found[3] or "")
                yield from references(found[3] or "", depth + 1)
            position = end + 1
            continue
        plain = _NAME.match(text, position + 1)
        if plain is not None:
            yield VariableReference(plain[0])
        position = plain.end() if plain is not None else position + 1


def _closing(text: str, position: int) -> int:
    depth = 1
    while position < len(text):
        if text.startswith("${", position):
            depth += 1
            position += 1
        elif text[position] == "}":
            depth -= 1
            if not depth:
                return position
        position += 1
    return len(text)


def uses(content: Any, where: Location = ()) -> Iterator[Use]:
    """Every reference in the values of a compose file, and the variables that a service lists without a value
    (`environment: [TOKEN]`), which the tool takes from its own environment."""
    if isinstance(content, str):
        for reference in references(content):
            yield Use(reference, where)
    elif isinstance(content, Mapping):
        for key, value in content.items():
            yield from uses(value, (*where, str(key)))
    elif isinstance(content, list):
        for position, value in enumerate(content):
            yield from uses(value, (*where, position))
    if len(where) == 3 and where[0] == "services" and where[2] == "environment":
        yield from _passed_on(content, where)


def _passed_on(environment: Any, where: Location) -> Iterator[Use]:
    if isinstance(environment, Mapping):
        names = [str(name) for name, value in environment.items() if value is None]
    else:
        names = [entry for entry in environment or () if isinstance(entry, str) and "=" not in entry]
    for name in names:
        if _NAME.fullmatch(name):
            yield Use(VariableReference(name, "-", ""), where)


def offered(found: list[Use], dotenv: Mapping[str, str]) -> list[Offered]:
    """The parameters, in the order of the file. A value in `.env` is the default; else the file's own, where every
    use has the same. A variable with several defaults is optional, and they stay in the file."""
    by_name: dict[str, list[Use]] = {}
    for use in found:
        by_name.setdefault(use.reference.name, []).append(use)
    return [_offer(name, each, dotenv.get(name)) for name, each in by_name.items()]


def _offer(name: str, found: list[Use], from_file: str | None) -> Offered:
    written = {use.reference.operand for use in found if use.reference.operator in (":-", "-")}
    default = from_file
    if default is None and len(written) == 1 and not any(references(next(iter(written)))):
        default = next(iter(written)) or None
    asked = [use.reference.operand for use in found if use.reference.operator in (":?", "?")]
    is_needed = bool(asked) or (not written and any(use.reference.operator == "" for use in found))
    services = sorted({str(use.where[1]) for use in found if len(use.where) > 1 and use.where[0] == "services"})
    description = next(filter(None, asked), "") or (f"Used by {', '.join(services)}." if services else "")
    kind = _kind(name, default, found)
    return Offered(
        name=name,
        pointer=name,
        data_type=kind,
        default=_typed(default, kind),
        is_required=is_needed and default != "",
        description=description,
        is_port=kind == "integer" and _is_port(name, found),
    )


def _kind(name: str, default: str | None, found: list[Use]) -> str:
    """A type that accepts every value the file could take: text, unless the default and the use both imply more."""
    if default in ("true", "false"):
        return "boolean"
    is_number = default is None or _INTEGER.fullmatch(default) is not None
    if is_number and _is_port(name, found):
        return "integer"
    if default is not None and is_number and _NUMBER_NAME.search(name) and not _in_image(found):
        return "integer"
    return "string"


def _is_port(name: str, found: list[Use]) -> bool:
    in_ports = any(len(use.where) > 2 and use.where[2] == "ports" for use in found)
    return in_ports or (_PORT_NAME.search(name) is not None and not _in_image(found))


def _in_image(found: list[Use]) -> bool:
    return any(use.where[-1:] == ("image",) for use in found)


def _typed(default: str | None, kind: str) -> str | int | bool | None:
    if default is None or kind == "string":
        return default
    return default == "true" if kind == "boolean" else int(default)


def looks_secret(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None


def parse_dotenv(text: str) -> dict[str, str]:
    """`.env` next to a compose file: NAME=value lines, without quotes and comments."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        found = _DOTENV.fullmatch(line)
        if found is None or line.lstrip().startswith("#"):
            continue
        values[found[1]] = _unquoted(found[2])
    return values


def _unquoted(value: str) -> str:
    for quote in ("'", '"'):
        if value.startswith(quote) and (end := value.find(quote, 1)) > 0:
            return value[1:end]
    return re.sub(r"\s+#.*$", "", value)
