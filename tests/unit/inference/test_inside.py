"""What other capabilities of this process get of a task's answer."""

import anyio
import anyio.lowlevel
from hypothesis import given
from hypothesis import strategies as st

from homeport.inference.tasks.inside import read_on, whole_text
from homeport.inference.tasks.stream import TaskStream

HALVES = "\ud83d\ude00"
"""Of one character, as engines send them that cut where they like."""


@given(st.lists(st.lists(st.text(alphabet="aé€😀" + HALVES, max_size=4), min_size=1, max_size=3), max_size=10))
def test_an_answer_that_is_read_as_it_comes_is_the_one_that_is_kept(batches: list[list[str]]) -> None:
    texts: list[str] = []

    async def answer() -> None:
        stream = TaskStream()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read_on, stream, texts.append)
            for batch in batches:
                await stream.put_tokens(batch)
                await anyio.lowlevel.checkpoint()
            stream.end({})

    anyio.run(answer)
    assert "".join(texts) == whole_text("".join(text for batch in batches for text in batch))
    assert all(text.encode() for text in texts), "none is empty, and each has whole characters only"
