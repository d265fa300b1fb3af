"""A plan reads like the storyboard: what, where, why, and what to do next."""

from homeport.serving.bodies.plans import (
    PlanBody,
    PlannedComponent,
    PlannedDeployment,
    PlannedNode,
    PlannedParameter,
    RefusedNode,
)
from homeport.site.api.plan import MoveBody, SitePlanBody
from tests.integration.cli.canned import Canned
from tests.integration.cli.conftest import Homeport

PLAN = PlanBody(
    changes=True,
    restarts=1,
    deletions=0,
    deployments=[
        PlannedDeployment(
            site="home",
            deployment_id="0e2f7c1a",
            name="hello",
            action="update",
            app_name="hello",
            version_before="1.0.0",
            version_after="1.1.0",
            revision_before="sha256:4f2cffff",
            nodes=[
                PlannedNode(
                    node_id="this-laptop",
                    components=[
                        PlannedComponent(component="web", action="replace", why="revision 1.0.0 → 1.1.0"),
                        PlannedComponent(component="cache", action="keep", why="unchanged"),
                    ],
                )
            ],
            refused=[RefusedNode(node_id="tiny-box", why="1 core, 2 are needed")],
            parameters=[PlannedParameter(name="greeting", before="Hello", after="Ahoy")],
        )
    ],
)
NO_CHANGES = PlanBody(changes=False, restarts=0, deletions=0, deployments=[])


def test_a_plan_says_what_would_happen_where_and_why(homeport: Homeport, canned: Canned) -> None:
    canned.answers["POST /api/v1/deployments"] = lambda _: PLAN
    done = homeport("deploy", "hello@1.1.0", "--site", "home", "--set", "greeting=Ahoy", "--plan")
    assert done.stdout.splitlines() == [
        "Would change 1 deployment at 1 site:",
        "",
        "  home   hello  1.0.0 → 1.1.0                    now revision 4f2cffff",
        "    this-laptop   web     replace   revision 1.0.0 → 1.1.0",
        "                  cache   keep      unchanged",
        "    tiny-box      refused: 1 core, 2 are needed",
        '    parameters    greeting "Hello" → "Ahoy"',
        "  restarts 1 component, deletes nothing.",
        "",
        "Run it without --plan to apply.",
    ]
    request = canned.sent("POST", "/api/v1/deployments")
    assert request.query == {"plan": "true"}
    assert request.body == {
        "app_id": "demo-hello-1.1.0",
        "sites": [{"site_id": "home"}],
        "parameters": {"greeting": "Ahoy"},
    }


def test_what_a_site_would_do_next_is_a_table(canned: Canned, homeport: Homeport) -> None:
    move = MoveBody(
        deployment_id="0e2f7c1a-0000-4000-8000-000000000000",
        name="hello",
        node_id="a",
        action="update",
        status="held",
        trigger="changed",
        why="its file changed; held until 20:00 UTC by anna: a shift is running",
    )
    canned.answers["GET /api/v1/plan"] = lambda request: SitePlanBody(commit="c" * 40, moves=[move])
    done = homeport("sites", "plan")
    assert done.returncode == 0
    assert [line.split()[:4] for line in done.stdout.splitlines()] == [
        ["ACTION", "DEPLOYMENT", "NODE", "STATUS"],
        ["update", "hello", "a", "held"],
    ]
    assert "by anna: a shift is running" in done.stdout
