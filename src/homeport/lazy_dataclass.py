"""`dataclass` as in the standard library, whose methods are compiled when they are first used.

The standard library writes and compiles up to six methods for each class when its module is imported. `homeport up`
imports more than seven hundred such classes, and never calls most of their methods: they were a quarter of the time
until it is ready, and some kilobytes of memory each (ADR 0102). Here `__init__` is compiled for the first instance,
and the other methods are shared code over the fields. Fields, defaults, slots, `replace`, `asdict` and pattern
matching are the standard library's own. What is not used here (`order`, `InitVar`) is left out.
"""

import dataclasses
from collections.abc import Callable, Sequence
from operator import attrgetter
from reprlib import recursive_repr
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, Final, cast

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, slots=False, kw_only=False, eq=True):
        def decorate(cls):
            return _complete(cls, frozen=frozen, slots=slots, kw_only=kw_only, eq=eq)

        return decorate if cls is None else decorate(cls)


Init = Callable[..., None]


def _complete(cls: type, *, frozen: bool, slots: bool, kw_only: bool, eq: bool) -> type:
    own = dict(vars(cls))
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # the standard library would compute a signature for it
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(cls)
    methods: dict[str, Any] = {"__init__": _compile_and_init, "__repr__": _represent}
    if eq:
        made.__compared__ = _values([field.name for field in dataclasses.fields(made) if field.compare])
        # As in the standard library, only what cannot change has a hash.
        methods |= {"__eq__": _equals, "__hash__": _hash if frozen else None}
    if frozen:
        methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
    if frozen and slots:
        methods |= {"__getstate__": _state, "__setstate__": _restore}
    for name, method in methods.items():
        # A class with `__eq__` alone has a `__hash__` of None, which it did not write.
        if name not in own or (name == "__hash__" and own[name] is None and "__eq__" in own):
            setattr(made, name, method)
    return cast(type, made)


def _compile_and_init(self: Any, *args: Any, **kwargs: Any) -> None:
    """The `__init__` of every class before its first instance. The first that has it is the one that is asked for: a
    subclass without it has called us itself."""
    cls: Any = next(each for each in type(self).__mro__ if vars(each).get("__init__") is _compile_and_init)
    compiled = _compiled_init(cls, frozen=cls.__setattr__ is _refuse_to_set)
    cls.__init__ = compiled
    compiled(self, *args, **kwargs)


def _compiled_init(cls: type, *, frozen: bool) -> Init:
    """Defaults are passed as names, so that the text has nothing in it but the names of fields."""
    known: dict[str, Any] = {"_missing": dataclasses.MISSING, "_set": object.__setattr__}
    positional, keyword, body = ["self"], list[str](), list[str]()
    for field in dataclasses.fields(cls):
        name, value, default = field.name, field.name, ""
        if field.default_factory is not dataclasses.MISSING:
            known[f"_new_{name}"] = field.default_factory
            value = f"_new_{name}() if {name} is _missing else {name}" if field.init else f"_new_{name}()"
            default = "=_missing"
        elif field.default is not dataclasses.MISSING:
            known[f"_default_{name}"] = field.default
            value = name if field.init else f"_default_{name}"
            default = f"=_default_{name}"
        elif not field.init:
            continue  # `__post_init__` sets it
        if field.init:
            (keyword if field.kw_only else positional).append(name + default)
        if not frozen:
            body.append(f"self.{name} = {value}")
        elif isinstance(slot := getattr(cls, name, None), MemberDescriptorType):
            known[f"_set_{name}"] = slot.__set__  # in two thirds of the time: the slot need not be looked up
            body.append(f"_set_{name}(self, {value})")
        else:
            body.append(f"_set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join([*positional, *(["*", *keyword] if keyword else [])])
    exec(f"def __init__({parameters}):\n " + "\n ".join(body or ["pass"]), known)
    init: Init = known.pop("__init__")
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return init


@recursive_repr()
def _represent(self: Any) -> str:
    shown = (field.name for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


def _equals(self: Any, other: Any) -> bool:
    if other.__class__ is not self.__class__:
        return NotImplemented  # type: ignore[no-any-return]
    values = self.__compared__
    return bool(values(self) == values(other))


def _hash(self: Any) -> int:
    return hash(self.__compared__(self))


def _values(names: Sequence[str]) -> Callable[[Any], Any]:
    """What is compared of an instance, as a tuple. No method: it is given the instance itself."""
    if len(names) > 1:
        return attrgetter(*names)
    return _OneValue(names[0]) if names else _NO_VALUES


class _OneValue:
    """An `attrgetter` of one name would give the value alone."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, instance: Any) -> tuple[Any]:
        return (getattr(instance, self._name),)


class _NoValues:
    def __call__(self, instance: Any) -> tuple[()]:
        return ()


_NO_VALUES: Final = _NoValues()


def _refuse_to_set(self: Any, name: str, value: Any) -> None:
    if _is_frozen(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _refuse_to_delete(self: Any, name: str) -> None:
    if _is_frozen(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
    object.__delattr__(self, name)


def _is_frozen(self: Any, name: str) -> bool:
    """A subclass that is not a dataclass may have attributes of its own."""
    return "__dataclass_fields__" in vars(type(self)) or name in self.__dataclass_fields__


def _state(self: Any) -> list[Any]:
    """For copies, which cannot assign to a frozen instance with slots."""
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _restore(self: Any, state: Sequence[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
