"""Which nodes get an instance, and what is said of the others."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from homeport.core.custom import OURS
from homeport.core.model.deployment import ComponentSpec, Desired, Placement, Release
from homeport.core.model.node import Capabilities, Gpu, Node, NodeInfo
from homeport.core.placement.eligibility import refusal
from homeport.core.placement.roster import device_of
from homeport.core.reconcile.demand import place_deployment as place
from homeport.vocabulary import DeploymentId, Digest, Liveness, NodeId, ProfileType, SiteName
from tests.support.builders import an_instance

NOW = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
SITE = SiteName("home")


def node(name: str, *, liveness: Liveness = Liveness.LIVE, labels: dict[str, str] | None = None, **more: Any) -> Node:
    capabilities = Capabilities(
        cpu_cores=4,
        memory_bytes=8 * 2**30,
        disk_bytes=100 * 2**30,
        disk_free_bytes=0,
        os="linux",
        architecture="amd64",
        engine="podman",
        profile_types=(ProfileType.COMPOSE,),
    )
    capabilities = replace(capabilities, **more)
    return Node(NodeInfo(NodeId(name), name, capabilities, labels or {}), SITE, liveness, NOW, NOW)


def desired(*nodes: str, constraints: dict[str, Any] | None = None) -> Desired:
    deployment_id, revision = DeploymentId("d"), Digest("sha256:0")
    return Desired(
        id=deployment_id,
        site=SITE,
        name="hello",
        namespace="homeport",
        margo_app_id="hello",
        app_name="hello",
        app_category="demo",
        app_version="1.0.0",
        profile_id="p",
        profile_type=ProfileType.COMPOSE,
        release=Release(deployment_id, "hello", revision, "1.0.0", ()),
        parameters={},
        device_constraints=constraints,
        placement=Placement(tuple(NodeId(name) for name in nodes)),
        rollout_id=None,
        revision=revision,
        path="",
    )


def test_every_eligible_node_is_chosen_in_the_order_of_names() -> None:
    placed = place(desired(), [node("b"), node("a"), node("c", liveness=Liveness.STALE)])
    assert placed.chosen == ("a", "b", "c")
    assert placed.refused == {}


def test_only_the_nodes_asked_for_are_chosen() -> None:
    placed = place(desired("b"), [node("a"), node("b")])
    assert placed.chosen == ("b",)
    assert placed.refused == {"a": "a is not among the nodes that were asked for."}


def test_a_name_that_is_no_node_is_reported() -> None:
    placed = place(desired("b", "ghost"), [node("b")])
    assert placed.chosen == ("b",)
    assert placed.refused == {"ghost": 'The site has no node called "ghost".'}


def test_a_node_that_cannot_run_the_profile_is_refused_with_what_it_runs() -> None:
    placed = place(desired(), [node("a", engine="", profile_types=())])
    assert placed.refused == {"a": "a cannot run compose apps: with no container engine it runs nothing."}


def test_a_node_whose_engine_has_not_answered_yet_may_keep_what_it_holds() -> None:
    waiting = [node(name, engine="", profile_types=()) for name in ("a", "b")]
    assert place(desired(), waiting, {NodeId("a"): an_instance(node="a")}).chosen == ("a",)
    assert place(desired("b"), waiting, {NodeId("a"): an_instance(node="a")}).chosen == ()


def test_a_node_that_lacks_memory_is_refused_with_the_amounts() -> None:
    placed = place(desired(constraints={"capacityRequirements": {"memory": "16Gi"}}), [node("a")])
    assert placed.refused == {"a": "a needs 16Gi of memory, has 8Gi."}


def test_a_full_disk_does_not_make_a_node_incapable() -> None:
    assert place(desired(constraints={"capacityRequirements": {"storage": "50Gi"}}), [node("a")]).chosen == ("a",)


def test_a_lost_node_is_not_chosen_but_told_apart_from_an_incapable_one() -> None:
    lost = node("a", liveness=Liveness.LOST)
    placed = place(desired(), [lost, node("b")])
    assert placed.chosen == ("b",)
    assert placed.refused == {"a": "a has sent no heartbeat since 2026-03-01 12:30:00 UTC."}
    assert placed.silent == ("a",)
    incapable = replace(lost, info=node("a", profile_types=()).info)
    assert place(desired(), [incapable]).silent == ()


def test_labels_and_graphics_cards_can_be_asked_for() -> None:
    one = node("a", labels={"zone": "paint"}, gpus=(Gpu("A2", "NVIDIA", 2**34),))
    rules = [
        {
            "propertySelector": {
                "matchExpressions": [
                    {
                        "key": "/peripherals",
                        "operator": "ContainsAll",
                        "itemSelector": {
                            "matchExpressions": [{"key": "/manufacturer", "operator": "In", "values": ["NVIDIA"]}]
                        },
                    }
                ]
            },
            "labelSelector": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["paint"]}]},
        }
    ]
    assert refusal({"eligibilityRules": rules}, device_of(one)) is None
    assert refusal({"eligibilityRules": rules}, device_of(node("b"))) is not None


def custom(section: dict[str, Any]) -> Desired:
    wanted = desired()
    part = ComponentSpec("web", ProfileType.CUSTOM, "oci://r/web", "1.0.0", extensions={OURS: section})
    return replace(wanted, profile_type=ProfileType.CUSTOM, release=replace(wanted.release, components=(part,)))


def test_images_and_native_programs_go_to_nodes_that_run_them() -> None:
    both = (ProfileType.CUSTOM,)
    nodes = [
        node(engine, engine=engine, profile_types=both)
        for engine in ("podman", "docker", "containerd", "process", "null")
    ]
    images = place(custom({"image": {}}), nodes)
    assert images.chosen == ("containerd", "docker", "null", "podman")
    said = "process cannot run web, which is an image: with process it runs native programs."
    assert images.refused == {"process": said}
    programs = place(custom({"process": {"command": ["a"]}}), nodes)
    assert programs.chosen == ("null", "process")
    assert programs.refused[NodeId("podman")].endswith("which is a native program: with podman it runs images.")


def test_the_engine_is_a_label_that_nobody_has_to_set() -> None:
    rule = {"matchExpressions": [{"key": "homeport.engine", "operator": "In", "values": ["containerd"]}]}
    rules = [{"labelSelector": rule}]
    assert refusal({"eligibilityRules": rules}, device_of(node("a", engine="containerd"))) is None
    assert refusal({"eligibilityRules": rules}, device_of(node("b"))) is not None
    named = node("c", labels={"homeport.engine": "containerd"})
    assert refusal({"eligibilityRules": rules}, device_of(named)) is None


def test_a_cluster_beside_an_engine_takes_nothing_from_it() -> None:
    """Its engine is called `podman+kubernetes`: it still runs images, and no native programs."""
    types = (ProfileType.CUSTOM, ProfileType.HELM)
    both = node("both", engine="podman+kubernetes", profile_types=types)
    assert place(custom({"image": {}}), [both]).chosen == ("both",)
    assert place(custom({"process": {"command": ["x"]}}), [both]).chosen == ()
    seen = device_of(both)
    assert seen.properties["supportedRuntimes"] == ["oci"]
    assert seen.labels["homeport.engine"] == "podman"
    native = node("native", engine="process+kubernetes", profile_types=types)
    assert place(custom({"process": {"command": ["x"]}}), [native]).chosen == ("native",)
    assert place(custom({"image": {}}), [native]).chosen == ()


def test_a_plan_says_which_node_would_not_allow_an_image_what_it_asks() -> None:
    types = (ProfileType.CUSTOM,)
    nodes = [
        node("strict", profile_types=types, labels={"homeport.allow": "none"}),
        node("data", profile_types=types, labels={"homeport.allow": "host-paths=/data"}),
        node("all", profile_types=types, labels={"homeport.allow": "all"}),
        node("old", profile_types=types),
        node("newer", profile_types=types, labels={"homeport.allow": "something-new"}),
    ]
    placed = place(custom({"image": {"mounts": [{"source": "/data/x", "target": "/x"}]}}), nodes)
    assert placed.chosen == ("all", "data", "newer", "old")
    assert placed.refused[NodeId("strict")].endswith(
        "does not allow web image: mounts: /data/x (--allow host-paths)."
    )
    assert place(custom({"image": {"network": "host"}}), nodes).chosen == ("all", "newer", "old")
    bare = [node("ctr", engine="containerd", profile_types=types, labels={"homeport.allow": "none"})]
    assert place(custom({"image": {}}), bare).chosen == ("ctr",), "whoever runs containerd has chosen its network"
    assert place(custom({"image": {"network": "host"}}), bare).chosen == ()
