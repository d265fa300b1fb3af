"""The newest measurements of each node, in memory."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from homeport.core.telemetry.metrics import LABEL_LENGTH_MAX, LABELS_MAX, NAME_PATTERN
from homeport.core.telemetry.windows import SERIES_MAX, Labels, Series, series_of
from homeport.errors import InvalidInput
from homeport.lazy_dataclass import dataclass
from homeport.ports import Sample
from homeport.vocabulary import NodeId, SiteName
from homeport.wire.values import moment, node_id, number

NODES_MAX: Final = 10_000
"""Of one site, in one answer or call."""
VALUE_MAX: Final = 1e30
SERIES_KNOWN: Final = 50_000


@dataclass(frozen=True, slots=True)
class Latest:
    site: SiteName
    node_id: NodeId
    at: datetime
    values: Mapping[Series, float]


def values_of(samples: Iterable[Sample]) -> dict[Series, float]:
    """The well-formed samples of one message; others are left out."""
    values: dict[Series, float] = {}
    for sample in samples:
        if len(values) >= SERIES_MAX:
            break
        series = _series(sample.name, tuple(sample.labels.items()) if sample.labels else ())
        if series is not None and abs(sample.value) <= VALUE_MAX:  # NaN compares as false.
            values[series] = sample.value
    return values


@lru_cache(SERIES_KNOWN)
def _series(name: str, labels: Labels) -> Series | None:
    """None for what is malformed. Remembered: a node sends the same names again and again."""
    if len(labels) > LABELS_MAX or not NAME_PATTERN.fullmatch(name):
        return None
    if not all(NAME_PATTERN.fullmatch(key) and len(value) <= LABEL_LENGTH_MAX for key, value in labels):
        return None
    return series_of(name, dict(labels))


def encode_latest(nodes: Iterable[Latest], *, with_containers: bool) -> list[dict[str, Any]]:
    return [
        {
            "node": each.node_id,
            "at": each.at.isoformat(),
            "values": [
                [name, dict(labels), float(f"{value:.6g}")]
                for (name, labels), value in each.values.items()
                if with_containers or not name.startswith("container_")
            ],
        }
        for each in nodes
    ]


def decode_latest(site: SiteName, content: Any) -> Sequence[Latest]:
    """Raises InvalidInput for what another version may have sent."""
    try:
        return [
            Latest(
                site,
                node_id(each["node"]),
                moment(each["at"]),
                values_of(
                    Sample(str(name), number(value), {str(key): str(label) for key, label in labels.items()})
                    for name, labels, value in each["values"]
                ),
            )
            for each in content[:NODES_MAX]
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidInput(f"These are not measurements: {error!r}.") from error
