"""What `homeport port-forward` takes as a port."""

import click
import pytest

from homeport.cli.terminal.forwarding import Forward, parse_forward


@pytest.mark.parametrize(
    ("text", "local", "port"), [("8080:80", 8080, 80), ("80", 80, 80), (":80", 0, 80), ("0:80", 0, 80)]
)
def test_ports_are_read(text: str, local: int, port: int) -> None:
    assert parse_forward(text) == Forward(local, port)


@pytest.mark.parametrize("text", ["", "a:80", "80:", "80:0", "70000", "70000:80", "1:2:3"])
def test_what_is_no_port_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a port: write 8080:80, or 80 for the same here"):
        parse_forward(text)
