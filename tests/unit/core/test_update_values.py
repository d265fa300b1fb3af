"""What an update keeps of what was chosen before, and what becomes of it where the new version is another."""

from dataclasses import replace

import pytest

from homeport.catalog.deployment import parse_deployment, render_deployment
from homeport.catalog.description import parse_description
from homeport.core.model.app import App, Value
from homeport.core.model.deployment import Placement, PlacementOverrides, Policy, PolicyOverrides
from homeport.core.update_values import PreviousDeployment, RequestedValues, choose_profile, merge_values
from homeport.errors import Conflict, InvalidInput, NotFound
from homeport.vocabulary import DeploymentId, NodeId, PlacementMode, ProfileType, SiteName
from tests.support.running_central import MARGO

ID = DeploymentId("3952aa29-df29-4549-bc5f-111111111111")
HOME = SiteName("home")


def an_app(version: str = "1.0.0", **defaults: Value) -> App:
    text = MARGO.format(margo_id="demo-hello", name="hello", version=version).encode()
    app = parse_description(text, "margo.yaml", category="demo").app
    parameters = tuple(replace(each, value=defaults.get(each.name, each.value)) for each in app.parameters)
    return replace(
        app, parameters=parameters, settings=tuple(replace(each, immutable=False) for each in app.settings)
    )


def before(
    app: App, *, placement: Placement | None = None, policy: Policy | None = None, known: bool = True, **given: Value
) -> PreviousDeployment:
    settled = merge_values(app, RequestedValues(parameters=given), None)
    content = render_deployment(
        deployment_id=ID,
        site=HOME,
        name="hello",
        app=app,
        app_name="hello",
        profile=settled.profile,
        values=settled.values,
        placement=placement or Placement(),
        policy=policy or Policy(),
    )
    return PreviousDeployment(parse_deployment(content, f"deployments/home/{ID}.yaml", HOME), app if known else None)


def without(app: App, name: str) -> App:
    return replace(
        app,
        parameters=tuple(each for each in app.parameters if each.name != name),
        settings=tuple(each for each in app.settings if each.parameter != name),
    )


def test_a_profile_is_chosen_by_id_or_type_kept_or_asked_for_by_its_option() -> None:
    app = an_app()
    (compose,) = app.profiles
    image = replace(compose, id="demo-hello-image", type=ProfileType.CUSTOM)
    both = replace(app, profiles=(compose, image))
    assert choose_profile(both, image.id, None) is image
    assert choose_profile(both, "custom", None) is image
    assert choose_profile(both, None, before(app).file) is compose, "an update stays with the one that it has"
    with pytest.raises(Conflict, match="has several profiles") as unclear:
        choose_profile(both, None, None)
    expected = "Say which with  --profile : demo-hello-compose (compose), demo-hello-image (custom)."
    assert unclear.value.hint == expected
    with pytest.raises(NotFound, match='no profile "helm"'):
        choose_profile(both, "helm", None)


def test_a_chosen_value_stays_and_a_new_default_arrives() -> None:
    newer = an_app("1.1.0", greeting="Good day", port=19090)
    found = merge_values(newer, RequestedValues(), before(an_app(), greeting="Ahoy"))
    assert found.values["greeting"] == "Ahoy"
    assert found.values["port"] == 19090, "it was the default before, and the default is another one now"
    assert found.kept == {"greeting": '"Ahoy"'}


def test_a_value_that_is_given_again_wins() -> None:
    found = merge_values(
        an_app("1.1.0"), RequestedValues(parameters={"greeting": "Moin"}), before(an_app(), greeting="Ahoy")
    )
    assert (found.values["greeting"], found.kept) == ("Moin", {})


def test_reset_values_starts_from_the_defaults() -> None:
    old = before(an_app(), placement=Placement(nodes=(NodeId("a"),)), policy=Policy(retries_max=7), greeting="Ahoy")
    found = merge_values(an_app("1.1.0"), RequestedValues(reset_values=True), old)
    assert found == merge_values(an_app("1.1.0"), RequestedValues(), None)


def test_placement_and_policy_stay_field_by_field() -> None:
    placement = Placement(nodes=(NodeId("a"), NodeId("b")), mode=PlacementMode.COUNT, count=2)
    old = before(an_app(), placement=placement, policy=Policy(retries_max=7, deadline_seconds=90))
    requested = RequestedValues(
        policy=PolicyOverrides(retries_max=3), placement=PlacementOverrides(mode=PlacementMode.ONE)
    )
    found = merge_values(an_app("1.1.0"), requested, old)
    assert found.policy == Policy(retries_max=3, deadline_seconds=90), "3 is the usual, and was asked for"
    assert found.placement == Placement(nodes=(NodeId("a"), NodeId("b")), mode=PlacementMode.ONE)
    assert found.kept == {"nodes": "a, b", "deadline": "1m30s"}


def test_a_parameter_that_the_new_version_does_not_have_is_dropped_and_says_so() -> None:
    found = merge_values(without(an_app("1.1.0"), "greeting"), RequestedValues(), before(an_app(), greeting="Ahoy"))
    assert "greeting" not in found.values
    assert "has no such parameter" in found.dropped["greeting"]


def test_a_kept_value_that_the_new_version_refuses_refuses_the_update() -> None:
    newer = an_app("1.1.0")
    stricter = replace(newer, rules=tuple(replace(rule, max_length=3) for rule in newer.rules))
    with pytest.raises(InvalidInput) as caught:
        merge_values(stricter, RequestedValues(), before(an_app(), greeting="Ahoy there"))
    (problem,) = caught.value.problems
    assert problem.field == "parameters.greeting"
    assert "kept from 1.0.0" in problem.message and "--reset-values" in problem.message


def test_where_the_old_version_is_not_known_everything_is_kept() -> None:
    found = merge_values(an_app("1.1.0", greeting="Good day"), RequestedValues(), before(an_app(), known=False))
    assert found.values["greeting"] == "Hello"
    assert found.kept["greeting"] == '"Hello"'


def test_what_may_never_change_is_kept_even_where_it_was_the_default() -> None:
    newer = an_app("1.1.0", greeting="Good day")
    fixed = replace(newer, settings=tuple(replace(each, immutable=True) for each in newer.settings))
    assert merge_values(fixed, RequestedValues(), before(an_app())).values["greeting"] == "Hello"
