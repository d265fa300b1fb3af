"""The newest version is the one that SemVer says is newest."""

from homeport.core.values.versions import newest_first
from homeport.fleet.shared.answers.suggestion import did_you_mean


def test_versions_are_ordered_as_semver_orders_them() -> None:
    ordered = ["10.0.0", "2.10.0", "2.9.0", "2.0.0", "2.0.0-rc.11", "2.0.0-rc.2"]
    ordered += ["2.0.0-rc.1.1", "2.0.0-rc.1", "2.0.0-rc", "2.0.0-alpha", "2.0.0-7", "1.2", "latest", "edge"]
    assert newest_first(sorted(ordered), lambda version: version) == ordered


def test_a_mistyped_name_is_met_with_the_one_that_was_meant() -> None:
    assert did_you_mean("helo", ["hello", "vision"], "homeport apps list").startswith('Did you mean "hello"?')
    assert did_you_mean("zzz", ["hello"], "homeport apps list") == "List them:  homeport apps list"
