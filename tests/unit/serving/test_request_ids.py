"""Ids of requests: random, and never the same in two processes."""

import os
import threading
import uuid

from homeport.serving.request_ids import new_request_id, new_uuid


def test_a_uuid_is_random_and_says_so() -> None:
    made = {new_uuid() for _ in range(10_000)}
    assert len(made) == 10_000
    for text in made:
        parsed = uuid.UUID(text)
        assert (str(parsed), parsed.version, parsed.variant) == (text, 4, uuid.RFC_4122)
    assert {text[19] for text in made} == set("89ab")


def test_every_digit_of_an_id_is_random() -> None:
    made = [new_request_id() for _ in range(2_000)]
    assert all(len(text) == 32 for text in made)
    assert all(len({text[position] for text in made}) == 16 for position in range(32))


def test_threads_never_share_an_id() -> None:
    made: list[list[str]] = [[] for _ in range(4)]
    threads = [
        threading.Thread(target=lambda mine=mine: mine.extend(new_request_id() for _ in range(5_000)))
        for mine in made
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({text for mine in made for text in mine}) == 20_000


def test_a_forked_process_has_ids_of_its_own() -> None:
    new_request_id()  # some are read ahead
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, "".join(new_request_id() for _ in range(100)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader) as told:
        text = told.read()
    theirs = {text[start : start + 32] for start in range(0, len(text), 32)}
    assert len(theirs) == 100
    assert theirs.isdisjoint({new_request_id() for _ in range(1_000)})
