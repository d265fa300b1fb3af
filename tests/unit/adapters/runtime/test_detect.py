"""Which engine is chosen, and what is said when there is none."""

import os
import platform
import subprocess
from pathlib import Path

import pytest

from homeport.adapters.registry.oci import OciRegistry
from homeport.adapters.runtime.detect import MAKERS, open_runtime
from homeport.adapters.runtime.docker_api.engine import EngineOptions
from homeport.adapters.runtime.doctor.diagnosis import DIAGNOSES, EngineVerdict, diagnose, explain_refusal
from homeport.adapters.runtime.doctor.probe_image import _CODE, _elf
from homeport.core.model.engines import ENGINES
from homeport.errors import EngineUnavailable, InvalidInput
from homeport.vocabulary import NodeId
from tests.support.engines import engine_environment

pytestmark = pytest.mark.anyio

NOTHING = EngineOptions(environment={"PATH": "/nonexistent", "DOCKER_HOST": "unix:///nonexistent/docker.sock"})
NO_CONTAINERD = EngineOptions(environment={**engine_environment(), "CONTAINERD_ADDRESS": "/nonexistent/c.sock"})


async def test_a_machine_without_engine_is_told_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match=r"podman was not found.*docker\.sock is not.*ctr was not") as failure:
        await open_runtime("auto", tmp_path, OciRegistry(), NodeId("n"), options=NOTHING)
    assert "Install Podman" in str(failure.value.hint)


async def test_an_unknown_runtime_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match='There is no runtime "rkt"'):
        await open_runtime("rkt", tmp_path, OciRegistry(), NodeId("n"))


@pytest.mark.parametrize(("kind", "variable"), [("docker", "DOCKER_HOST"), ("podman", "CONTAINER_HOST")])
async def test_an_engine_on_another_machine_is_refused_with_a_sentence(
    tmp_path: Path, kind: str, variable: str
) -> None:
    options = EngineOptions(environment={variable: "ssh://elsewhere"})
    with pytest.raises(EngineUnavailable, match=f"{variable}=ssh://elsewhere is not a socket"):
        await open_runtime(kind, tmp_path, OciRegistry(), NodeId("n"), options=options)


async def test_the_doctor_finds_a_working_podman() -> None:
    (finding,) = await diagnose("podman", EngineOptions(environment=engine_environment()))
    assert finding.verdict is EngineVerdict.OK
    assert finding.sentence.startswith("podman 4.") or finding.sentence.startswith("podman 5.")


async def test_the_doctor_names_what_is_missing() -> None:
    findings = await diagnose("auto", NOTHING)
    assert [finding.verdict for finding in findings] == [EngineVerdict.PROBLEM]
    assert "was not found" in findings[0].sentence
    assert "Install" in findings[0].what_to_do


async def test_a_containerd_that_is_not_there_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match=r"containerd's socket /nonexistent/c\.sock is not there") as failure:
        await open_runtime("containerd", tmp_path, OciRegistry(), NodeId("n"), options=NO_CONTAINERD)
    assert "apt-get install containerd" in str(failure.value.hint)
    (finding,) = await diagnose("containerd", NO_CONTAINERD)
    assert finding.verdict is EngineVerdict.PROBLEM
    assert "--runtime" in finding.what_to_do


async def test_the_doctor_explains_a_runtime_that_is_not_there(tmp_path: Path) -> None:
    configuration = tmp_path / "containers.conf"
    configuration.write_text('[engine]\nruntime = "no-such-runtime"\n')
    options = EngineOptions(environment={**os.environ, "CONTAINERS_CONF": str(configuration)})
    (finding,) = await diagnose("podman", options)
    assert finding.verdict is EngineVerdict.PROBLEM
    assert "not installed" in finding.sentence
    assert 'runtime = "runc"' in finding.what_to_do


@pytest.mark.parametrize(
    ("reason", "sentence", "todo"),
    [
        (
            "OCI runtime error: crun: cgroups in hybrid mode not supported",
            "crun does not support this machine's cgroups",
            "runc",
        ),
        ("crun: setrlimit `RLIMIT_NPROC`: Operation not permitted", "higher limits", "default_ulimits"),
        ("runc: error setting rlimit type 7: operation not permitted", "higher limits", "default_ulimits"),
        ("newuidmap: Operation not permitted", "newuidmap", "subuid"),
        ("something new", "something new", ""),
    ],
)
def test_known_refusals_come_with_what_to_do(reason: str, sentence: str, todo: str) -> None:
    finding = explain_refusal("podman", "4.3.1", reason)
    assert sentence in finding.sentence
    assert todo in finding.what_to_do


def test_the_trial_program_really_runs(tmp_path: Path) -> None:
    program = tmp_path / "probe"
    program.write_bytes(_elf(*_CODE[platform.machine()]))
    program.chmod(0o755)
    assert subprocess.run([program], check=False).returncode == 0


def test_every_engine_of_the_table_can_be_made_and_every_one_that_is_found_can_be_diagnosed() -> None:
    assert MAKERS.keys() == ENGINES.keys()
    assert DIAGNOSES.keys() == {name for name, engine in ENGINES.items() if engine.is_found}
