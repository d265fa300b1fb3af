"""The list of failpoints is whole: what the code passes is in it, and everything in it is passed."""

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from homeport import failpoints
from homeport.errors import InvalidInput
from homeport.failpoints import Point

PACKAGE = Path(failpoints.__file__).parent


def passed_in_the_code() -> set[str]:
    return {
        node.args[0].attr
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "passing"
        if isinstance(node.args[0], ast.Attribute)
    }


def test_every_point_of_the_list_is_passed_somewhere() -> None:
    assert passed_in_the_code() == {point.name for point in Point}


def dies(wanted: str, *passings: Point) -> bool:
    program = "import sys; from homeport import failpoints as f; f.arm(sys.argv[1]); " + "".join(
        f"f.passing(f.Point.{point.name}); " for point in passings
    )
    done = subprocess.run([sys.executable, "-c", program, wanted], env=os.environ, check=False)
    assert done.returncode in {0, -signal.SIGKILL}
    return done.returncode != 0


def test_the_process_dies_at_the_nth_passage_of_its_point_alone() -> None:
    twice = (Point.GIT_BEFORE_PUSH, Point.GIT_AFTER_PUSH, Point.GIT_BEFORE_PUSH)
    assert dies("git-before-push", *twice[:1])
    assert dies("git-before-push:2", *twice)
    assert not dies("git-before-push:2", *twice[:2])
    assert not dies("", *twice)


def test_it_may_ask_to_be_stopped_instead_once() -> None:
    program = (
        "import signal; from homeport import failpoints as f; seen = []; "
        "signal.signal(signal.SIGTERM, lambda *_: seen.append(1)); f.arm('git-before-push:2:term'); "
        "[f.passing(f.Point.GIT_BEFORE_PUSH) for _ in range(4)]; assert seen == [1], seen"
    )
    subprocess.run([sys.executable, "-c", program], env=os.environ, check=True)


@pytest.mark.parametrize(
    "wanted",
    [
        *("nowhere", "git-before-push:0", "git-before-push:often", "git-before-push:-1"),
        *("git-before-push:1:hup", f"git-before-push:{'9' * 5_000}"),
    ],
)
def test_a_name_that_is_none_is_refused_with_the_list(wanted: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        failpoints.arm(wanted)
    assert "git-before-push" in (caught.value.hint or "")
