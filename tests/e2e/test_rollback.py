"""A release that does not work is tried again or rolled back, by itself or by hand, and Git never undoes that."""

import subprocess
from pathlib import Path

from tests.support.podman import containers, podman
from tests.support.processes import Machine, start_up

ROLLED_BACK = 8


def running(host: Machine) -> tuple[str, str, str | None]:
    """State, and the version that runs; with the version whose program really runs, as Podman tells it."""
    (deployment,) = host.json("deployments", "list")["deployments"]
    (instance,) = deployment["instances"]
    return deployment["state"], deployment["app_version"], instance["running_version"]


def greetings(deployment_id: str) -> list[str]:
    return [str(each["Labels"]["homeport.digest"]) for each in containers(deployment=deployment_id)]


def test_a_release_that_is_not_healthy_is_rolled_back_and_sync_respects_it(
    host: Machine, apps: Path, node_prefix: str
) -> None:
    up = start_up(host, node=f"{node_prefix}-laptop")
    host.homeport("apps", "add", str(apps))
    host.homeport("deploy", "fickle@1.0.0", "--site", "home", "--wait")
    (deployment,) = host.json("deployments", "list")["deployments"]
    good = greetings(deployment["id"])

    done = host.command("deploy", "fickle@1.1.0", "--site", "home", "--wait")
    assert done.returncode == ROLLED_BACK, done.stdout + done.stderr
    assert "ROLLED BACK" in done.stderr and "HEALTH_CHECK_FAILED" in done.stderr
    assert running(host) == ("INSTALLED", "1.1.0", "1.0.0")
    assert greetings(deployment["id"]) == good
    shown = host.homeport("deployments", "show", "fickle@home")
    assert "rolled back to 1.0.0" in shown

    states = [entry["after"] for entry in host.json("deployments", "history", "fickle@home")["history"]]
    assert states[-4:] == ["UPDATING", "FAILED", "ROLLINGBACK", "INSTALLED"]
    before = [each["Id"] for each in containers(deployment=deployment["id"])]
    up.stop()
    start_up(host, node=f"{node_prefix}-laptop")
    host.homeport("deploy", "quiet@1.0.0", "--site", "home", "--wait")
    assert [each["Id"] for each in containers(deployment=deployment["id"])] == before
    (again,) = [each for each in host.json("deployments", "list")["deployments"] if each["name"] == "fickle"]
    assert again["instances"][0]["rejected_revision"] == again["revision"]

    host.homeport("deploy", "fickle@1.3.0", "--site", "home", "--wait")
    (mended,) = [each for each in host.json("deployments", "list")["deployments"] if each["name"] == "fickle"]
    assert mended["instances"][0]["running_version"] == "1.3.0"
    assert mended["instances"][0]["rejected_revision"] is None
    for name in ("fickle@home", "quiet@home"):
        host.homeport("deployments", "delete", name, "--wait")
    assert containers(deployment=deployment["id"]) == []


def test_what_cannot_be_pulled_is_tried_again_and_then_rolled_back_while_the_old_release_runs_on(
    host: Machine, apps: Path, node_prefix: str
) -> None:
    start_up(host, node=f"{node_prefix}-laptop")
    host.homeport("apps", "add", str(apps))
    host.homeport("deploy", "fickle@1.0.0", "--site", "home", "--wait")
    (deployment,) = host.json("deployments", "list")["deployments"]
    before = [each["Id"] for each in containers(deployment=deployment["id"])]

    done = host.command("deploy", "fickle@1.2.0", "--site", "home", "--retries", "1", "--wait")
    assert done.returncode == ROLLED_BACK, done.stdout + done.stderr
    assert "IMAGE_PULL_FAILED" in done.stderr
    assert "attempt 2 of 2" in done.stdout
    assert [each["Id"] for each in containers(deployment=deployment["id"])] == before, "it was never touched"
    happenings = [entry["trigger"] for entry in host.json("deployments", "history", "fickle@home")["history"]]
    assert happenings[-6:] == ["changed", "gave-up", "retried-update", "gave-up", "rolled-back", "healthy"]

    failed = host.command("deploy", "fickle@1.1.0", "--site", "home", "--no-rollback", "--retries", "0", "--wait")
    assert failed.returncode == 1, failed.stdout + failed.stderr
    history = host.json("deployments", "history", "fickle@home")["history"]
    assert history[-1]["reason"].endswith("The release before it does not run.")
    page = host.command("status")
    assert page.returncode == 1, "something needs attention"
    assert "fickle@home" in page.stdout and "HEALTH_CHECK_FAILED" in page.stdout
    host.homeport("deployments", "delete", "fickle@home", "--wait")


def test_going_back_by_hand_changes_git_and_can_be_compared_first(
    host: Machine, apps: Path, node_prefix: str
) -> None:
    start_up(host, node=f"{node_prefix}-laptop")
    host.homeport("apps", "add", str(apps))
    host.homeport("deploy", "fickle@1.0.0", "--site", "home", "--wait")
    (first,) = host.json("deployments", "list")["deployments"]
    nothing = host.command("deployments", "rollback", "fickle@home")
    assert nothing.returncode == 5
    assert "nothing to go back to" in nothing.stderr
    host.homeport("deploy", "fickle@1.3.0", "--site", "home", "--wait")

    compared = host.command("deployments", "diff", "fickle@home")
    assert compared.returncode == 6
    assert "properties.revision: 1.0.0 → 1.3.0" in compared.stdout
    shown = host.homeport("deployments", "rollback", "fickle@home", "--reason", "the new one is too loud")
    assert "rolls back to 1.0.0" in shown and "INSTALLED" in shown
    assert running(host) == ("INSTALLED", "1.0.0", "1.0.0")
    (after,) = host.json("deployments", "list")["deployments"]
    assert after["revision"] == first["revision"]
    releases = host.json("deployments", "history", "fickle@home", "--releases")["revisions"]
    assert [(each["app_version"], each["wanted"]) for each in releases] == [("1.0.0", True), ("1.3.0", False)]

    host.homeport("deployments", "rollback", "fickle@home", "--to", "1.3.0")
    assert running(host) == ("INSTALLED", "1.3.0", "1.3.0")
    unknown = host.command("deployments", "rollback", "fickle@home", "--to", "7.7.7")
    assert unknown.returncode == 3
    assert "has no revision 7.7.7" in unknown.stderr
    page = host.homeport("status")
    assert "1 of 1 in reach" in page and "1 INSTALLED" in page and "All is well." in page

    host.homeport("deploy", "fickle@1.3.0", "--site", "home", "--remove-images", "--wait")
    (container,) = containers(deployment=first["id"])
    podman("image", "inspect", container["Image"])
    host.homeport("deployments", "delete", "fickle@home", "--wait")
    # Another test on this engine may run the same release: then it stays.
    is_gone = podman("image", "inspect", "--format", "{{.Id}}", container["Image"], check=False).strip() == ""
    assert is_gone or podman("ps", "--all", "--quiet", "--filter", f"ancestor={container['Image']}"), (
        "its image goes with it where that was asked for"
    )


def test_going_back_works_while_git_is_gone_and_git_hears_of_it_on_its_return(host: Machine, apps: Path) -> None:
    start_up(host, runtime="null")
    host.homeport("apps", "add", str(apps))
    host.homeport("deploy", "quiet@1.0.0", "--site", "home", "--wait")
    host.homeport("deploy", "quiet@1.1.0", "--site", "home", "--wait")
    repository = host.folder / "up" / "central" / "deployments.git"
    away = repository.with_name("away.git")
    repository.rename(away)
    shown = host.homeport("deployments", "rollback", "quiet@home", "--reason", "night shift", "--wait")
    assert "Git follows as soon as it can be written" in shown and "INSTALLED" in shown
    assert running(host) == ("INSTALLED", "1.1.0", "1.0.0")

    away.rename(repository)
    host.wait_for(lambda: running(host) == ("INSTALLED", "1.0.0", "1.0.0"))
    log = subprocess.run(
        ["git", "--git-dir", str(repository), "log", "-1", "--format=%s%n%b", "main"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "roll back quiet at home" in log and "night shift" in log
    host.homeport("deploy", "quiet@1.1.0", "--site", "home", "--set", "mood=merry", "--wait")
    assert running(host) == ("INSTALLED", "1.1.0", "1.1.0")
