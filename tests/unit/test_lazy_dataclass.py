"""Our dataclasses behave as those of the standard library, and are compiled when they are used."""

import copy
import dataclasses
import importlib
import pickle
import pkgutil
from typing import Any, ClassVar

import pytest

import homeport
from homeport import lazy_dataclass

OPTIONS: list[dict[str, bool]] = [
    {},
    {"slots": True},
    {"frozen": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "slots": True, "kw_only": True},
    {"slots": True, "eq": False},
]


class Plain:
    LIMIT: ClassVar[int] = 3
    name: str
    sizes: list[int] = dataclasses.field(default_factory=list)
    secret: str = dataclasses.field(default="", repr=False)
    seen: int = dataclasses.field(default=0, compare=False)
    total: int = dataclasses.field(init=False, default=7)
    made: dict[str, int] = dataclasses.field(init=False, default_factory=dict)


class Checked:
    size: int
    note: str | None = None

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("too small")

    def __repr__(self) -> str:
        return "mine"


class Single:
    only: float


class Empty:
    pass


def both(shape: type, options: dict[str, bool]) -> tuple[Any, Any]:
    """The same class by the standard library and by us."""
    namespace = {name: value for name, value in vars(shape).items() if name not in {"__dict__", "__weakref__"}}

    def again() -> type:
        return type(shape.__name__, (), dict(namespace))

    return dataclasses.dataclass(**options)(again()), lazy_dataclass.dataclass(**options)(again())


SAMPLES: list[tuple[type, list[dict[str, Any]]]] = [
    (Plain, [{"name": "a"}, {"name": "b", "sizes": [1]}, {"name": "a", "secret": "x", "seen": 4}]),
    (Checked, [{"size": 1}, {"size": 1, "note": "n"}, {"size": 2}]),
    (Single, [{"only": 1.0}, {"only": float("nan")}]),
    (Empty, [{}]),
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("shape", "samples"), SAMPLES, ids=lambda each: getattr(each, "__name__", ""))
def test_instances_are_those_of_the_standard_library(
    shape: type, samples: list[dict[str, Any]], options: dict[str, bool]
) -> None:
    theirs, ours = both(shape, options)
    assert [field.name for field in dataclasses.fields(ours)] == [field.name for field in dataclasses.fields(theirs)]
    assert getattr(ours, "__match_args__", None) == getattr(theirs, "__match_args__", None)
    assert getattr(ours, "__slots__", None) == getattr(theirs, "__slots__", None)
    for given in samples:
        one, other = theirs(**given), ours(**given)
        assert values(other) == values(one)
        assert repr(other).rpartition(".")[2] == repr(one).rpartition(".")[2]
        assert values(copy.copy(other)) == values(other)
        assert values(copy.deepcopy(other)) == values(other)
        for more in samples:
            assert (ours(**given) == ours(**more)) == (theirs(**given) == theirs(**more))
            assert (other == more) is False
        assert outcome(hash, other)[0] == outcome(hash, one)[0]
        for field in dataclasses.fields(ours)[:1]:
            assert outcome(setattr, other, field.name, "z")[0] == outcome(setattr, one, field.name, "z")[0]
            assert outcome(delattr, other, field.name)[0] == outcome(delattr, one, field.name)[0]


def values(instance: Any) -> str:
    """As text, in which not a number is equal to itself."""
    return str(dataclasses.asdict(instance))


def outcome(work: Any, *given: Any) -> tuple[str, Any]:
    try:
        return "done", work(*given)
    except Exception as error:  # noqa: BLE001 - it is what is compared
        return type(error).__name__, None


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_wrong_arguments_are_refused_alike(options: dict[str, bool]) -> None:
    theirs, ours = both(Plain, options)
    for arguments, named in (((), {}), (("a", [], "", 0, 9), {}), ((), {"name": "a", "total": 1}), (("a",), {})):
        assert outcome(lambda: theirs(*arguments, **named))[0] == outcome(lambda: ours(*arguments, **named))[0]  # noqa: B023
    theirs, ours = both(Checked, options)
    assert outcome(lambda: ours(size=-1))[0] == outcome(lambda: theirs(size=-1))[0] == "ValueError"


@lazy_dataclass.dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 0


@lazy_dataclass.dataclass(frozen=True, slots=True)
class Named(Point):
    name: str = ""


def test_a_subclass_has_the_fields_of_both_and_may_be_first() -> None:
    assert Named(1, 2, "n") == Named(x=1, y=2, name="n") != Named(1, 2)
    assert (Point(1) == Named(1)) is False
    assert dataclasses.replace(Named(1), name="m") == Named(1, 0, "m")
    assert pickle.loads(pickle.dumps(Named(3, 4, "p"))) == Named(3, 4, "p")
    with pytest.raises(dataclasses.FrozenInstanceError):
        Named(1).x = 2  # type: ignore[misc]
    match Point(5, 6):
        case Point(x, y):
            assert (x, y) == (5, 6)


def test_every_dataclass_of_homeport_takes_what_it_declares() -> None:
    """The signature that is compiled for the first instance is the one that the standard library would write."""
    wrong = []
    for cls in sorted(our_dataclasses(), key=lambda each: each.__qualname__):
        fields = [field for field in dataclasses.fields(cls) if field.init]
        compiled = lazy_dataclass._compiled_init(cls, frozen=True).__code__
        positional = [field.name for field in fields if not field.kw_only]
        names = ["self", *positional, *(field.name for field in fields if field.kw_only)]
        if list(compiled.co_varnames[: compiled.co_argcount + compiled.co_kwonlyargcount]) != names:
            wrong.append(cls.__qualname__)
    assert wrong == []


def our_dataclasses() -> set[type]:
    found = set()
    for module in pkgutil.walk_packages(homeport.__path__, "homeport."):
        if module.name.startswith(("homeport.core.", "homeport.ports.")):
            loaded = importlib.import_module(module.name)
            found |= {each for each in vars(loaded).values() if isinstance(each, type) and _is_ours(each)}
    return found


def _is_ours(cls: type) -> bool:
    return dataclasses.is_dataclass(cls) and cls.__module__.startswith("homeport.")
