"""How large bodies of the task plane may be; messages may carry images, and audio is uploaded."""

from collections.abc import Mapping
from typing import Final

from homeport.core.inference.settings import InferenceSettings

_MIB: Final = 1024 * 1024
_LARGE: Final = ("/v1/chat/completions", "/v1/responses", "/v1/audio/transcriptions")
_SMALLER: Final[Mapping[str, int]] = {
    "/v2/tasks": 8 * _MIB,
    "/v2/artifacts": 4 * _MIB,
    "/v1/completions": 8 * _MIB,
    "/v1/embeddings": 8 * _MIB,
}


def inference_bytes_max(settings: InferenceSettings) -> dict[str, int]:
    """By the end of a path, for the guard in front of every route. None is above the setting."""
    most = settings.body_bytes_max
    return dict.fromkeys(_LARGE, most) | {path: min(size, most) for path, size in _SMALLER.items()}
