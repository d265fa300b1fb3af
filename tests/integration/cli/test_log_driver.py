"""What `homeport doctor` says of Podman's log driver, with a program in Podman's place that names one."""

from pathlib import Path

import pytest

from homeport.cli.local.diagnosis import check_log_driver


def podman_of(folder: Path, script: str) -> dict[str, str]:
    (folder / "podman").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "podman").chmod(0o755)
    return {"PATH": str(folder)}


def test_a_driver_of_which_lines_may_be_missing_is_noted_with_what_to_set(tmp_path: Path) -> None:
    (found,) = check_log_driver("podman", podman_of(tmp_path, "echo journald"))
    assert (found.level, "journald" in found.message, "k8s-file" in found.hint) == ("note", True, True)


@pytest.mark.parametrize("script", ["echo k8s-file", "echo json-file", "exit 1"])
def test_a_file_driver_and_a_podman_that_does_not_say_are_no_note(tmp_path: Path, script: str) -> None:
    assert check_log_driver("auto", podman_of(tmp_path, script)) == []


def test_other_engines_are_not_asked(tmp_path: Path) -> None:
    assert check_log_driver("docker", podman_of(tmp_path, "echo journald")) == []
    assert check_log_driver("podman", {"PATH": str(tmp_path / "nothing")}) == []
