"""The sentence that asks for a first token: what it says to do makes one where the role will look for it."""

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from homeport.cli.main import cli
from homeport.cli.roles.addresses import ListenAddress
from homeport.cli.roles.options import require_token_for
from homeport.errors import Refused


@pytest.mark.parametrize("database", ["central.db", "site.db"])
def test_doing_as_the_sentence_says_is_enough(tmp_path: Path, database: str) -> None:
    elsewhere = ListenAddress("192.0.2.7", 8443)
    with pytest.raises(Refused) as refused:
        require_token_for(elsewhere, tmp_path / database)
    said = (refused.value.hint or "").splitlines()[0].partition("homeport ")[2]
    done = CliRunner().invoke(cli, shlex.split(said))
    assert done.exit_code == 0, done.output
    require_token_for(elsewhere, tmp_path / database)
