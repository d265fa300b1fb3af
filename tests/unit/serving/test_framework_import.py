"""What the import of the web framework is spared at the start of a role."""

import subprocess
import sys

import pytest

LOOK = """
import importlib
from pydantic import BaseModel
importlib.import_module("homeport.{module}")
from fastapi.openapi.models import Info, OpenAPI
assert not Info.__pydantic_complete__, "the framework's own models are built at the start"
assert BaseModel.model_config == {{}}, "and no other model is meant"
class Ours(BaseModel):
    name: str
assert Ours.__pydantic_complete__
document = {{"openapi": "3.1.0", "info": {{"title": "t", "version": "1"}}, "paths": {{}}}}
assert OpenAPI.model_validate(document).info.title == "t"
"""


@pytest.mark.parametrize("module", ["central.app", "site.app"])
def test_a_role_starts_without_the_validators_of_the_frameworks_own_models(module: str) -> None:
    command = [sys.executable, "-c", LOOK.format(module=module)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
