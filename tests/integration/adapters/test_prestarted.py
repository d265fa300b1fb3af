"""A compose tool that was started ahead does what one that is started now does."""

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from homeport.adapters.runtime.compose.tool import ask_tool
from homeport.adapters.runtime.podman.tool import PROGRAM, resolve_command
from homeport.adapters.runtime.programs import child_process
from homeport.adapters.runtime.programs.prestarted import NOT_CALLED, Prestarted
from homeport.errors import InvalidInput

pytestmark = pytest.mark.anyio

COMPOSE = 'services: {web: {image: "shop/web:${TAG}", env_file: own.env}}'


@pytest.fixture
async def prestarted() -> AsyncIterator[Prestarted]:
    tool = Prestarted(PROGRAM, os.environ)
    yield tool
    await tool.close()


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "compose.yaml").write_text(COMPOSE)
    (tmp_path / "own.env").write_text("A=b\n")
    return tmp_path


def waiting(tool: Prestarted) -> list[int]:
    return [process.pid for process, _ in tool._waiting]


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_it_answers_as_one_that_is_started_now(prestarted: Prestarted, shop: Path) -> None:
    command = resolve_command(["--file", str(shop / "compose.yaml")])
    environment = {**os.environ, "TAG": "1.0"}
    await prestarted.warm(2)
    first, second = waiting(prestarted)
    assert await ask_tool(command, environment, shop, prestarted) == await ask_tool(command, environment, shop)
    assert waiting(prestarted) == [second], "each does one thing"
    assert not lives(first)
    found = await ask_tool(command, {**environment, "TAG": "2.0"}, shop, prestarted)
    assert found["services"]["web"]["image"] == "shop/web:2.0"
    assert waiting(prestarted) == []


async def test_a_mistake_is_said_as_before(prestarted: Prestarted, shop: Path) -> None:
    (shop / "compose.yaml").write_text("services: [")
    command = resolve_command(["--file", str(shop / "compose.yaml")])
    await prestarted.warm(1)
    with pytest.raises(InvalidInput) as ahead:
        await ask_tool(command, os.environ, shop, prestarted)
    with pytest.raises(InvalidInput) as now:
        await ask_tool(command, os.environ, shop)
    assert str(ahead.value) == str(now.value)


async def test_one_that_died_while_it_waited_is_started_again(prestarted: Prestarted, shop: Path) -> None:
    command = resolve_command(["--file", str(shop / "compose.yaml")])
    await prestarted.warm(1)
    ((process, _),) = prestarted._waiting
    process.kill()
    found = await ask_tool(command, {**os.environ, "TAG": "1.0"}, shop, prestarted)
    assert found["services"]["web"]["image"] == "shop/web:1.0"


async def test_one_that_ends_when_it_is_called_is_started_again(tmp_path: Path) -> None:
    script = tmp_path / "late.py"
    script.write_text(
        f"import sys\nif '--wait' in sys.argv: sys.stdin.read(); sys.exit({NOT_CALLED})\nprint('done')\n"
    )
    tool = Prestarted([sys.executable, str(script)], os.environ)
    await tool.warm(1)
    done = await child_process.run(
        [sys.executable, str(script), "x"], environment=os.environ, seconds=60, folder=tmp_path, prestarted=tool
    )
    assert (done.exit_code, done.output.strip()) == (0, "done")


async def test_nothing_is_left_of_those_that_were_not_called() -> None:
    tool = Prestarted(PROGRAM, os.environ)
    await tool.warm(2)
    pids = waiting(tool)
    assert len(pids) == 2
    await tool.warm(2)
    assert waiting(tool) == pids, "they are there already"
    await tool.close()
    assert not any(map(lives, pids))


async def test_another_program_is_not_taken_for_it(prestarted: Prestarted, tmp_path: Path) -> None:
    await prestarted.warm(1)
    done = await child_process.run(
        [sys.executable, "-c", "print(1)"], environment=os.environ, seconds=60, folder=tmp_path, prestarted=prestarted
    )
    assert done.output.strip() == "1"
    assert len(waiting(prestarted)) == 1
