"""`make generate` writes the TypeScript files, and `--check` finds those that are stale."""

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "generate-typescript"


def script() -> ModuleType:
    loader = SourceFileLoader("generate_typescript", str(SCRIPT))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_stale_types_fail_the_check_and_are_written_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generator = script()
    assert generator.main(["--check"]) == 0, "those of the repository are current"
    vars(generator)["ROOT"] = tmp_path
    assert generator.main(["--check"]) == 1
    assert "make generate" in capsys.readouterr().err
    assert not list(tmp_path.iterdir()), "a check writes nothing"
    assert generator.main([]) == 0
    assert generator.main(["--check"]) == 0
    one = sorted(tmp_path.rglob("*.ts"))[0]
    one.write_text(one.read_text() + "// changed by hand\n")
    capsys.readouterr()
    assert generator.main(["--check"]) == 1
    assert capsys.readouterr().err.count("stale: ") == 1
