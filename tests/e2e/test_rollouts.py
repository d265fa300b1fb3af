"""A release on its way to several sites, in waves, with real containers: it stops where it does harm."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.fleet import Fleet
from tests.support.git import bare_repository
from tests.support.podman import containers
from tests.support.processes import Machine

WAVES = ("--wave", "1", "--wave", "100%")


def running(fleet: Fleet) -> dict[str, tuple[str, str | None]]:
    """By site: the state there, and the version that runs."""
    found = fleet.roles["central"].get("/api/v1/deployments")["deployments"]
    return {
        each["site"]: (each["state"], each["instances"][0]["running_version"]) for each in found if each["instances"]
    }


def test_a_release_that_breaks_in_the_second_wave_stops_there_and_the_first_keeps_it(
    host: Machine, apps: Path, tmp_path: Path, node_prefix: str, port: int
) -> None:
    fleet = Fleet(host, str(bare_repository(tmp_path / "deployments.git")))
    fleet.central()

    def join(site: str, runtime: str = "podman") -> None:
        fleet.site(site)
        fleet.node(f"{node_prefix}-{site}", site, runtime=runtime)
        host.homeport("sites", "label", site, "region=eu")

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(join, ("east", "north", "south")))
    host.homeport("apps", "add", str(apps))
    host.wait_for(lambda: len(fleet.roles["central"].get("/api/v1/nodes")["nodes"]) == 3)
    host.homeport("deploy", "fickle@1.0.0", "-l", "region=eu")
    assert running(fleet) == dict.fromkeys(("east", "north", "south"), ("INSTALLED", "1.0.0"))

    # It publishes a port, and all sites are on this machine: only the first of them can have it.
    newer = ("fickle@1.4.0", "-l", "region=eu", "--set", f"port={port}", "--retries", "0")
    done = host.command("deploy", *newer, *WAVES)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "STOPPED: wave 2:" in done.stderr and "0% are allowed" in done.stderr
    shown = host.json("rollouts", "show", "fickle")
    assert shown["state"] == "stopped"
    assert {member["site"] for member in shown["members"] if member["wave"] == 1} == {"east"}
    assert shown["failing"]
    # One that failed stops the rollout; the other of its wave may still be on its way back.
    host.wait_for(
        lambda: all("rolled back" in each["why"] for each in host.json("rollouts", "show", "fickle")["failing"])
    )

    # Who was not harmed keeps it; the others are back at what was good, each with a container that runs.
    settled = {"east": ("INSTALLED", "1.4.0"), "north": ("INSTALLED", "1.0.0"), "south": ("INSTALLED", "1.0.0")}
    host.wait_for(lambda: running(fleet) == settled)
    states = [each["State"] for site in settled for each in containers(node=f"{node_prefix}-{site}")]
    assert states == ["running"] * 3
    host.homeport("rollouts", "abort", "fickle")
    join("west", runtime="null")
    host.wait_for(lambda: running(fleet) == {**settled, "west": ("INSTALLED", "1.0.0")})
    assert host.json("rollouts", "show", "fickle")["state"] == "aborted"
    for site in settled:
        fleet.roles[f"{node_prefix}-{site}"].stop()  # Else they would bring back what is tidied up after the test.
