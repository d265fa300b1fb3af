"""Sizes as command arguments."""

from typing import Any, Final

import click

_FACTORS: Final = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class _Size(click.ParamType[int]):
    """50G, 500M or bytes, in powers of 1024."""

    name = "SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value).upper().removesuffix("B").removesuffix("I")
        number, factor = (text[:-1], _FACTORS[text[-1]]) if text[-1:] in _FACTORS else (text, 1)
        if not number.isdecimal() or not 0 < int(number) * factor < 2**60:
            self.fail(f'"{value}" is not a size, for example 50G', param, ctx)
        return int(number) * factor


SIZE: Final = _Size()
