"""The limits of pipelines. Everything that a file, a caller or an answer could make large is bounded here."""

from typing import Final

SOURCE_BYTES_MAX: Final = 256 * 1024
NAME_PATTERN: Final = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
STEP_PATTERN: Final = r"^[a-z]([a-z0-9_]{0,38}[a-z0-9])?$"
"""Without dashes, so that `steps.name` is an expression."""
INPUT_PATTERN: Final = r"^[A-Za-z][A-Za-z0-9_]{0,62}$"
STEPS_MAX: Final = 100
ITEMS_MAX: Final = 256
"""Of the list that one step goes over."""
PARALLEL_MAX: Final = 32
"""Items of one run that are carried out at once."""
DEPTH_MAX: Final = 5
"""Pipelines that call pipelines."""
INPUTS_BYTES_MAX: Final = 64 * 1024
OUTPUT_BYTES_MAX: Final = 256 * 1024
"""Of one item of a step, as JSON."""
OUTPUTS_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of all steps of a run together."""
LOG_BYTES_MAX: Final = 128 * 1024
"""Of one item of a step; the beginning is dropped."""
RETRIES_MAX: Final = 10
TIMEOUT_SECONDS_MAX: Final = 7 * 86_400.0
BODY_BYTES_MAX: Final = 1024 * 1024
"""Of an HTTP step's request and response."""
EXPRESSION_LENGTH_MAX: Final = 1_000
EXPRESSION_DEPTH_MAX: Final = 40
TEMPLATE_EXPRESSIONS_MAX: Final = 100
"""In one text."""
EXPRESSIONS_MAX: Final = 1_000
"""In one pipeline: reading forty thousand took a quarter of a minute."""
