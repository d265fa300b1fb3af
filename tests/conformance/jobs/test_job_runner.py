"""Every `JobRunner` behaves alike."""

from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from homeport.adapters.jobs.processes import ProcessJobs
from homeport.errors import WorkFailed
from homeport.ports import JobRunner, RunStatus
from tests.conformance.jobs.stand import JobStand
from tests.support.cdi import pretended_gpus
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio


def _ignore(_step: str, _message: str, _done: int, _total: int) -> None:
    pass


async def _ended(runner: JobRunner, run_id: str) -> RunStatus:
    async def look() -> bool:
        status = await runner.look(run_id)
        return status is not None and not status.is_running

    await eventually(look)
    status = await runner.look(run_id)
    assert status is not None
    return status


async def _output(runner: JobRunner, run_id: str) -> bytes:
    return b"".join([chunk async for chunk in runner.output(run_id)])


async def test_a_run_ends_with_its_exit_code_and_is_removed(stand: JobStand) -> None:
    runner = stand.runner()
    request = stand.request("exit 3", environment={"HOMEPORT_NULL_EXIT": "3"})
    assert await runner.look(request.id) is None
    await runner.prepare(request, _ignore)
    await runner.start(request)
    status = await _ended(runner, request.id)
    assert (status.exit_code, status.started_at is not None) == (3, True)
    assert list(await runner.runs()) == [request.id]
    await runner.remove(request.id)
    assert list(await runner.runs()) == []
    assert await runner.look(request.id) is None
    await runner.remove(request.id)  # Repeating it is harmless.


async def test_a_second_start_after_a_restart_of_the_node_starts_nothing(real: JobStand) -> None:
    request = real.request("echo once; exit 0")
    await real.runner().prepare(request, _ignore)
    await real.runner().start(request)
    await _ended(real.runner(), request.id)
    await real.runner().start(request)
    assert await _output(real.runner(), request.id) == b"once\n"


async def test_output_is_followed_to_the_end_and_read_again_from_the_beginning(real: JobStand) -> None:
    runner = real.runner()
    request = real.request("echo one; echo two >&2; sleep 0.3; printf three")
    await runner.prepare(request, _ignore)
    await runner.start(request)
    assert sorted((await _output(runner, request.id)).split()) == [b"one", b"three", b"two"]
    await _ended(runner, request.id)
    assert sorted((await _output(runner, request.id)).split()) == [b"one", b"three", b"two"]


async def test_stop_kills_everything_that_the_run_has_started(stand: JobStand) -> None:
    runner = stand.runner()
    request = stand.request("sleep 600 & sleep 600", environment={"HOMEPORT_NULL_SECONDS": "600"})
    await runner.prepare(request, _ignore)
    await runner.start(request)
    with anyio.fail_after(30):
        await runner.stop(request.id)
    status = await runner.look(request.id)
    assert status is not None
    assert not status.is_running
    await runner.stop(request.id)
    await runner.remove(request.id)


async def test_variables_and_secrets_reach_the_program(real: JobStand) -> None:
    runner = real.runner()
    request = real.request('echo "$PLAIN $HIDDEN"', environment={"PLAIN": "a b"}, secrets={"HIDDEN": "s3cr3t"})
    assert "s3cr3t" not in repr(request)
    await runner.prepare(request, _ignore)
    await runner.start(request)
    assert await _output(runner, request.id) == b"a b s3cr3t\n"


async def test_files_are_collected_up_to_a_size(real: JobStand) -> None:
    runner, folder = real.runner(), "" if real.name == "process" else "/tmp/"
    script = f"{'' if real.name == 'process' else 'mkdir -p /tmp;'} printf abc > {folder}a.txt; mkdir {folder}d"
    request = real.request(script)
    await runner.prepare(request, _ignore)
    await runner.start(request)
    await _ended(runner, request.id)
    assert await runner.collect(request.id, f"{folder}a.txt", bytes_max=3) == b"abc"
    for path, why in (
        (f"{folder}a.txt", "larger"),
        (f"{folder}none", "was not kept"),
        (f"{folder}d", "was not kept"),
    ):
        with pytest.raises(WorkFailed, match=why):
            await runner.collect(request.id, path, bytes_max=2)


async def test_a_program_that_is_not_there_is_a_failure_with_a_sentence(real: JobStand) -> None:
    runner = real.runner()
    request = real.request("")
    request = type(request)(request.id, ("/no/such/program",), request.image)
    await runner.prepare(request, _ignore)
    with pytest.raises(WorkFailed, match="the job could not be started"):
        await runner.start(request)
    assert await runner.look(request.id) is None


async def test_a_native_command_cannot_hand_out_files_of_the_machine(real: JobStand) -> None:
    if real.name != "process":
        pytest.skip("a container has files of its own")
    runner = real.runner()
    request = real.request("ln -s /etc/hostname link")
    await runner.start(request)
    await _ended(runner, request.id)
    with pytest.raises(WorkFailed, match="no such file in the job's folder"):
        await runner.collect(request.id, "link", bytes_max=1000)


@pytest.mark.parametrize(
    "state", ["", "[]", "{}", '{"pid": []}', '{"pid": 1, "start_time": 1, "digest": "", "started_at": "?"}']
)
async def test_what_a_power_cut_or_a_person_left_in_the_folder_of_native_jobs_harms_none(
    tmp_path: Path, state: str
) -> None:
    runner = ProcessJobs(tmp_path, {"PATH": "/usr/bin:/bin"})
    (tmp_path / "file").write_text("not of ours")
    (tmp_path / "a folder").mkdir()
    (tmp_path / "job.1").mkdir()
    (tmp_path / "job.1" / "state.json").write_text(state)
    assert list(await runner.runs()) == ["job.1"]
    assert await runner.look("job.1") is None
    assert await runner.look("file") is None
    await runner.stop("job.1")
    await runner.remove("job.1")
    assert list(await runner.runs()) == []


async def test_every_line_of_a_chatty_run_is_read_once_and_in_order(real: JobStand) -> None:
    """Also the last one: a run ends in the moment in which it prints it."""
    runner, count = real.runner(), 20_000
    request = real.request(f"i=0; while [ $i -lt {count} ]; do i=$((i+1)); echo line $i; done; printf end")
    await runner.prepare(request, _ignore)
    await runner.start(request)
    lines = (await _output(runner, request.id)).split(b"\n")
    assert lines == [*(f"line {number}".encode() for number in range(1, count + 1)), b"end"]


async def test_an_entrypoint_takes_the_place_of_the_images_and_gets_the_command(real: JobStand) -> None:
    if real.name == "process":
        pytest.skip("a native command has no image")
    runner = real.runner()
    request = replace(real.request(""), entrypoint="/bin/echo", command=("-n", "one", "two"))
    await runner.prepare(request, _ignore)
    await runner.start(request)
    assert await _output(runner, request.id) == b"one two"


async def test_gpus_reach_the_container_with_everything_else(real: JobStand) -> None:
    if real.name != "podman":
        pytest.skip("devices can be pretended with Podman alone")
    runner = real.runner()
    request = real.request(
        'echo "$GPU_0 $GPU_1 $GPU_2 $PLAIN $HIDDEN"',
        environment={"PLAIN": "a=b"}, secrets={"HIDDEN": "s3cr3t"}, gpus=2, memory_bytes=64 * 2**20, cpu_cores=0.5,
    )  # fmt: skip
    with pretended_gpus(3):
        await runner.prepare(request, _ignore)
        await runner.start(request)
        await runner.start(request)
        assert (await _output(runner, request.id)).splitlines()[0] == b"yes yes  a=b s3cr3t"
    found = await _ended(runner, request.id)
    assert found.exit_code is not None
    assert await runner.runs() == [request.id], "it is found again by its labels"


async def test_jobs_at_the_same_time_get_gpus_of_their_own(real: JobStand) -> None:
    if real.name != "podman":
        pytest.skip("devices can be pretended with Podman alone")
    runner, script = real.runner(), "trap 'exit 0' TERM; echo \"$GPU_0 $GPU_1 $GPU_2\"; sleep 600 & wait"
    large, small = (replace(real.request(script, gpus=gpus), id=f"{real.run_id}{gpus}") for gpus in (2, 1))
    with pretended_gpus(3):
        await runner.prepare(large, _ignore)
        async with anyio.create_task_group() as tasks:
            for request in (large, small):
                tasks.start_soon(runner.start, request)
        with_two, with_one = [_gpus(await anext(aiter(runner.output(each.id)))) for each in (large, small)]
        assert (len(with_two), len(with_one), with_two | with_one) == (2, 1, {0, 1, 2})
        await runner.stop(small.id)
        after = replace(small, id=f"{real.run_id}9")
        await runner.start(after)
        assert _gpus(await anext(aiter(runner.output(after.id)))) == with_one, "one that has ended has none any more"


def _gpus(line: bytes) -> set[int]:
    return {number for number, word in enumerate(line.splitlines()[0].split(b" ")) if word}
