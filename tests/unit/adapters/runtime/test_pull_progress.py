"""Bytes pulled so far, from the engine's stream of layers."""

import json

from homeport.adapters.runtime.docker_api.pull_progress import PullProgress


def line(**told: object) -> bytes:
    return json.dumps(told).encode() + b"\n"


def downloading(layer: str, current: int, total: int) -> bytes:
    return line(status="Downloading", id=layer, progressDetail={"current": current, "total": total})


def test_bytes_are_added_up_over_layers() -> None:
    progress = PullProgress()
    assert list(progress.feed(downloading("a", 10, 100) + downloading("b", 5, 50))) == []
    assert (progress.bytes_done, progress.bytes_total) == (15, 150)
    assert list(progress.feed(line(status="Download complete", id="a"))) == []
    assert (progress.bytes_done, progress.bytes_total) == (105, 150)


def test_unpacking_does_not_count_again() -> None:
    progress = PullProgress()
    list(progress.feed(downloading("a", 100, 100)))
    list(progress.feed(line(status="Extracting", id="a", progressDetail={"current": 1, "total": 100})))
    assert progress.bytes_done == 100


def test_a_line_may_arrive_in_pieces() -> None:
    progress = PullProgress()
    whole = downloading("a", 10, 100)
    assert list(progress.feed(whole[:7])) == []
    assert list(progress.feed(whole[7:])) == []
    assert progress.bytes_total == 100


def test_an_error_is_handed_on() -> None:
    assert list(PullProgress().feed(line(error="manifest unknown"))) == ["manifest unknown"]
