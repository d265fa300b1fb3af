"""A site follows Git and conducts its nodes, with a real repository, store and protocol."""

from pathlib import Path

import pytest

from homeport.adapters.git import trees
from homeport.adapters.link.inprocess import InProcessLink
from homeport.core.data import data_trailer
from homeport.core.model.event import Deployment
from homeport.core.model.instance import Failure, Instance
from homeport.core.model.order import Held, Order
from homeport.fleet.site.git_sync import follow_once
from homeport.ports import DeploymentFilter, Store
from homeport.site.app import SiteApp
from homeport.vocabulary import Code, DeploymentId, Generation, Liveness, NodeId, OrderKind, State
from tests.integration.site.conftest import OpenSite
from tests.support.builders import a_node
from tests.support.deployment_files import deployment_file
from tests.support.git import Person, git
from tests.support.scripted_node import scripted_node
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio


async def only(store: Store, *, archived: bool = False) -> Deployment | None:
    async with store.read() as reader:
        found = await reader.deployments(DeploymentFilter(archived=archived))
    return found[0] if found else None


async def has_state(site: SiteApp, state: State) -> bool:
    deployment = await only(site.parts.store, archived=state is State.DELETED)
    return deployment is not None and deployment.state is state


async def reaches(site: SiteApp, state: State) -> None:
    await eventually(lambda: has_state(site, state), what=f"the deployment to be {state}")


def link(site: SiteApp) -> InProcessLink:
    return InProcessLink(site.parts.reception)


async def test_a_pushed_file_installs_and_its_removal_removes(person: Person, start: OpenSite) -> None:
    path, text = deployment_file()
    async with start() as site, scripted_node(link(site)) as node:
        person.write(path, text)
        person.push()
        await reaches(site, State.INSTALLED)
        (order,) = node.orders
        assert order.release is not None
        assert order.release.components[0].environment == {"GREETING": "Ahoy"}
        await eventually(lambda: node.acknowledged == 1)
        person.remove(path)
        person.push()
        await reaches(site, State.DELETED)
        assert [order.kind for order in node.orders] == [OrderKind.APPLY, OrderKind.REMOVE]
        assert node.orders[-1].remove_data_of == "", "data stays"
        assert site.parts.conductor.memory.instances == {}
        assert await only(site.parts.store) is None


async def test_data_goes_with_a_deployment_whose_deletion_says_so_over_a_restart_too(
    person: Person, start: OpenSite
) -> None:
    path, text = deployment_file()
    person.write(path, text)
    person.push()
    async with start() as site:
        async with scripted_node(link(site)) as node:
            await reaches(site, State.INSTALLED)
            held, (order,) = tuple(node.held.values()), node.orders
        person.remove(path)
        person.push(f"delete it\n\n{data_trailer(order.deployment_id)}")
        await eventually(lambda: not site.parts.conductor.memory.wanted)
    async with start() as site, scripted_node(link(site), held=held) as node:
        await reaches(site, State.DELETED)
        assert order.release is not None
        assert [(each.kind, each.remove_data_of) for each in node.orders] == [(OrderKind.REMOVE, order.release.name)]


async def test_history_names_actor_reason_and_time_of_every_step(person: Person, start: OpenSite) -> None:
    path, text = deployment_file()
    person.write(path, text)
    person.push()
    async with start() as site, scripted_node(link(site)):
        await reaches(site, State.INSTALLED)
        deployment = await only(site.parts.store)
        assert deployment is not None
        assert deployment.created_by == "Pat Person"
        async with site.parts.store.read() as reader:
            history = await reader.history(deployment.id)
        assert [(line.after, line.actor) for line in history] == [("INSTALLING", "site"), ("INSTALLED", "node")]
        assert all(line.reason for line in history)


async def test_a_changed_file_updates_what_runs(person: Person, start: OpenSite) -> None:
    path, text = deployment_file()
    person.write(path, text)
    person.push()
    async with start() as site, scripted_node(link(site)) as node:
        await reaches(site, State.INSTALLED)
        person.write(path, text.replace("Ahoy", "Moin"))
        person.push()
        await eventually(lambda: len(node.orders) == 2)
        await reaches(site, State.INSTALLED)
        assert node.orders[1].generation > node.orders[0].generation
        deployment = await only(site.parts.store)
        async with site.parts.store.read() as reader:
            history = await reader.history(deployment.id if deployment else DeploymentId(""))
        assert [line.after for line in history][2:] == ["UPDATING", "INSTALLED"]


async def test_a_failure_reaches_the_store_with_its_code(person: Person, start: OpenSite) -> None:
    def fails(order: Order) -> Failure:
        return Failure(Code.IMAGE_PULL_FAILED, "no such image", "web")

    path, text = deployment_file()
    person.write(path, text)
    person.push()
    async with start() as site, scripted_node(link(site), answer=fails):
        await reaches(site, State.FAILED)
        (instance,) = site.parts.conductor.memory.instances.values()
        assert instance.failure == Failure(Code.IMAGE_PULL_FAILED, "no such image", "web")


async def test_a_restart_of_the_site_sends_no_order_again(person: Person, start: OpenSite) -> None:
    path, text = deployment_file()
    person.write(path, text)
    person.push()
    async with start() as site, scripted_node(link(site)) as node:
        await reaches(site, State.INSTALLED)
        held = tuple(node.held.values())
    async with start() as site, scripted_node(link(site), held=held) as node:
        assert await has_state(site, State.INSTALLED)
        await site.parts.conductor.reconcile()
        assert node.orders == []


async def test_a_node_that_lost_its_journal_hears_its_orders_again(person: Person, start: OpenSite) -> None:
    path, text = deployment_file()
    person.write(path, text)
    person.push()
    async with start() as site:
        async with scripted_node(link(site)):
            await reaches(site, State.INSTALLED)
        async with scripted_node(link(site)) as node:
            await eventually(lambda: len(node.orders) == 1)
            assert await has_state(site, State.INSTALLED)


async def test_what_a_node_holds_and_nobody_wants_is_removed(person: Person, start: OpenSite) -> None:
    stray = Held(DeploymentId("11111111-1111-4111-8111-111111111111"), Generation(2**50), OrderKind.APPLY, None, True)
    async with start() as site:
        await eventually(lambda: site.parts.conductor.memory.applied)
        async with scripted_node(link(site), held=(stray,)) as node:
            await eventually(lambda: len(node.orders) == 1)
            assert (node.orders[0].kind, node.orders[0].deployment_id) == (OrderKind.REMOVE, stray.deployment_id)
            assert node.orders[0].generation > stray.generation


async def test_a_missing_marker_deletes_nothing_and_says_so(person: Person, start: OpenSite) -> None:
    path, text = deployment_file()
    person.write(path, text)
    person.push()
    async with start() as site, scripted_node(link(site)) as node:
        await reaches(site, State.INSTALLED)
        person.remove("deployments/home")
        person.write("README.md", "all gone")
        person.push()
        await eventually(lambda: site.parts.conductor.memory.source_problem)
        assert "deployments/home/site.yaml is missing" in str(site.parts.conductor.memory.source_problem)
        assert "is missing" in (await site.parts.contact.checks())["git"]
        assert len(node.orders) == 1
        assert await has_state(site, State.INSTALLED)


async def test_a_renamed_file_removes_nothing_and_its_problem_stays_until_it_is_gone(
    person: Person, start: OpenSite
) -> None:
    path, text = deployment_file()
    person.write(path, text)
    person.push()
    async with start() as site, scripted_node(link(site)) as node:
        await reaches(site, State.INSTALLED)
        memory = site.parts.conductor.memory
        person.remove(path)
        person.write(path.replace(".yaml", ".yml"), text)
        person.write("deployments/home/notes.txt", "what nobody reads")
        renamed = person.push()
        await eventually(lambda: memory.applied == renamed)
        source_problem = memory.source_problem
        assert source_problem is not None and ".yml" in source_problem
        for _ in range(3):  # looking again, as at every poll, does not take it back
            await follow_once(site.parts.git, site.parts.conductor)
        assert memory.source_problem == source_problem
        assert await has_state(site, State.INSTALLED)
        assert len(node.orders) == 1
        person.remove(path.replace(".yaml", ".yml"))
        person.remove("deployments/home/notes.txt")
        person.write(path, text)
        person.push()
        await eventually(lambda: memory.source_problem is None)
        assert len(node.orders) == 1, "the file is what it was, so nothing is done"


async def test_a_marker_alone_is_a_real_empty_state(person: Person, start: OpenSite) -> None:
    path, text = deployment_file()
    person.write(path, text)
    person.push()
    async with start() as site, scripted_node(link(site)):
        await reaches(site, State.INSTALLED)
        person.remove(path)
        person.push()
        await reaches(site, State.DELETED)


async def test_a_broken_file_keeps_its_own_deployment_and_delays_no_other(person: Person, start: OpenSite) -> None:
    path, text = deployment_file()
    person.write(path, text)
    person.push()
    async with start() as site, scripted_node(link(site)) as node:
        await reaches(site, State.INSTALLED)
        other, other_text = deployment_file(name="other")
        person.write(path, text.replace("deviceId: home", "deviceId: [home"))
        person.write(other, other_text)
        person.push()
        await eventually(lambda: len(node.orders) == 2)
        first = await eventually(lambda: only(site.parts.store))
        assert first is not None
        assert first.name == "hello"
        assert first.state is State.INSTALLED
        assert f"{path}:" in str(first.problem)
        person.write(path, text)
        person.push()
        await eventually(lambda: site.parts.conductor.memory.source_problem is None)
        mended = await only(site.parts.store)
        assert mended is not None
        assert mended.problem is None
        assert len(node.orders) == 2, "the file is what it was, so nothing is done"


async def test_rewritten_history_waits_for_a_person(person: Person, start: OpenSite, remote: Path) -> None:
    path, text = deployment_file()
    person.write(path, text)
    person.push()
    async with start() as site, scripted_node(link(site)) as node:
        await reaches(site, State.INSTALLED)
        git("checkout", "--quiet", "--orphan", "again", cwd=person.folder)
        (person.folder / path).unlink()
        person.push(force=True)
        await eventually(lambda: "history was rewritten" in str(site.parts.conductor.memory.source_problem))
        assert len(node.orders) == 1


async def test_a_deployment_that_no_node_can_run_fails_with_the_reason(person: Person, start: OpenSite) -> None:
    path, text = deployment_file(profile_type="helm")
    person.write(path, text)
    person.push()
    async with start() as site, scripted_node(link(site), "one"):
        await reaches(site, State.FAILED)
        (instance,) = site.parts.conductor.memory.instances.values()
        assert instance.failure is not None
        assert instance.failure.code == Code.NO_ELIGIBLE_NODE
        person.remove(path)
        person.push()
        await reaches(site, State.DELETED)


async def test_a_deployment_without_nodes_waits_and_can_be_withdrawn(person: Person, start: OpenSite) -> None:
    path, text = deployment_file()
    person.write(path, text)
    person.push()
    async with start() as site:
        await reaches(site, State.PENDING)
        person.remove(path)
        person.push()
        await reaches(site, State.DELETED)


async def test_silence_makes_a_node_stale_then_lost_and_a_word_live_again(person: Person, start: OpenSite) -> None:
    timing = {"heartbeat_seconds": 0.05, "stale_seconds": 0.3, "lost_seconds": 0.6, "sweep_seconds": 0.05}

    async with start(**timing) as site:

        def is_now(liveness: Liveness) -> bool:
            node = site.parts.conductor.memory.nodes.get(NodeId("one"))
            return node is not None and node.liveness is liveness

        async with scripted_node(link(site)) as node:
            node.is_silent = True
            await eventually(lambda: is_now(Liveness.STALE))
            await eventually(lambda: is_now(Liveness.LOST))
            await node.beat()
            await eventually(lambda: is_now(Liveness.LIVE))


def _code_of(instance: Instance) -> str | None:
    return instance.failure.code if instance.failure is not None else None


async def test_unfinished_work_on_a_lost_node_fails_and_is_tried_again(person: Person, start: OpenSite) -> None:
    timing = {"heartbeat_seconds": 0.05, "stale_seconds": 0.2, "lost_seconds": 0.4, "sweep_seconds": 0.05}
    path, text = deployment_file()
    async with start(**timing) as site:
        person.write(path, text)
        person.push()
        await eventually(lambda: bool(site.parts.conductor.memory.wanted))
        # Only now, for a node that is lost before the commit is seen would never get anything to do.
        await site.parts.reception.register(a_node("one").info)
        instances = site.parts.conductor.memory.instances
        # The deployment may be FAILED before, for want of any node.
        await eventually(lambda: [_code_of(each) for each in instances.values()] == [Code.NODE_OFFLINE])
        await reaches(site, State.FAILED)
        async with scripted_node(link(site)):
            await reaches(site, State.INSTALLED)


async def test_a_removed_node_is_dismissed_and_its_instances_are_forgotten(person: Person, start: OpenSite) -> None:
    path, text = deployment_file()
    person.write(path, text)
    person.push()
    async with start() as site, scripted_node(link(site)) as node:
        await reaches(site, State.INSTALLED)
        await site.parts.reception.unregister(NodeId("one"))
        await eventually(node.dismissed.is_set)
        await eventually(lambda: not site.parts.conductor.memory.instances)
        assert site.parts.conductor.memory.nodes == {}


@pytest.mark.parametrize("what", ["deep", "many"])
async def test_a_folder_that_cannot_be_read_is_a_problem_and_ends_nothing(
    person: Person, start: OpenSite, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    path, text = deployment_file()
    async with start() as site, scripted_node(link(site)):
        person.write(path, text)
        person.push()
        await reaches(site, State.INSTALLED)
        folder = path.rpartition("/")[0]
        if what == "many":
            monkeypatch.setattr(trees, "FILES_MAX", 20)
        for name in ["/".join("d" * 80)] if what == "deep" else map(str, range(30)):
            person.write(f"{folder}/x/{name}", "x")
        person.push()

        async def says() -> bool:
            async with site.parts.store.read() as reader:
                row = await reader.site(site.parts.conductor.memory.site)
            words = "is not named like a deployment" if what == "deep" else "more than 20 files"
            return row is not None and words in (row.problem or "")

        await eventually(says, what="the problem")
        person.remove(f"{folder}/x")
        other, text = deployment_file(name="other")
        person.write(other, text)
        person.push()
        async with site.parts.store.read() as reader:
            states = [row.state for row in await reader.deployments(DeploymentFilter())]
        assert states == [State.INSTALLED], "nothing was removed"

        async def both() -> bool:
            async with site.parts.store.read() as reader:
                rows = await reader.deployments(DeploymentFilter())
            return len(rows) == 2 and {row.state for row in rows} == {State.INSTALLED}

        await eventually(both, what="the next push to be followed")
