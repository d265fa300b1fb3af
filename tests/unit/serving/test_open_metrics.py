"""Who may read /metrics, by what was set and where the role listens."""

import pytest

from homeport.serving.routes.health import are_metrics_open


@pytest.mark.parametrize(
    ("setting", "host", "is_open"),
    [
        (None, "127.0.0.1", True),
        (None, "::1", True),
        (None, "localhost", True),
        (None, "0.0.0.0", False),
        (None, "::", False),
        (None, "192.0.2.7", False),
        (None, "", False),
        (True, "0.0.0.0", True),
        (False, "127.0.0.1", False),
    ],
)
def test_they_are_open_on_loopback_alone_unless_somebody_decides(
    setting: bool | None, host: str, *, is_open: bool
) -> None:
    assert are_metrics_open(setting, (host, 8080)) is is_open


def test_what_does_not_listen_opens_nothing() -> None:
    assert not are_metrics_open(None, None)
