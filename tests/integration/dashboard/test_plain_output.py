"""What the dashboard makes of the output of programs, which is written for terminals."""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "web" / "src" / "lib" / "plain.ts"
ENVIRONMENT = {**os.environ, "PATH": f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"}
SHOWN = "let shown = ''; for (const part of JSON.parse(process.argv[1])) shown = plain(shown + part);"


@pytest.mark.parametrize(
    ("parts", "shown"),
    [
        (["10%\r20%\r30%\n"], "10%\n20%\n30%\n"),
        (["10%\r", "20%\r", "\ndone"], "10%\n20%\r\ndone"),
        (["one\r\ntwo\r", "\n"], "one\r\ntwo\r\n"),
        (["\x1b[31mred\x1b", "[0m \x1b]0;title\x07"], "red "),
    ],
    ids=["progress", "progress in parts", "lines of windows", "colours"],
)
def test_a_page_shows_each_step_of_a_progress_bar_on_a_line(parts: list[str], shown: str) -> None:
    javascript = SOURCE.read_text().replace("export ", "").replace(": string", "")
    script = f"{javascript}\n{SHOWN}\nprocess.stdout.write(shown);"
    done = subprocess.run(["node", "-e", script, json.dumps(parts)], env=ENVIRONMENT, capture_output=True, check=True)
    assert done.stdout.decode() == shown
