"""Reads the files of pipelines. That takes milliseconds, and up to a second for the largest, so it is called in
threads; what was read is remembered, since a run, its page and its webhook read the same file again and again."""

from functools import lru_cache
from typing import Final

from homeport.catalog.pipeline import parse_pipeline
from homeport.core.pipelines.model import Pipeline
from homeport.errors import PermanentError

KNOWN_MAX: Final = 64


@lru_cache(maxsize=KNOWN_MAX)
def read_pipeline(source: str, path: str = "pipeline.yaml") -> Pipeline:
    """Raises PermanentError. Blocks."""
    return parse_pipeline(source.encode(), path)


def readable(source: str, path: str = "pipeline.yaml") -> Pipeline | None:
    """None for a file that another version could read. Blocks."""
    try:
        return read_pipeline(source, path)
    except PermanentError:
        return None
