"""The guides of docs/, walked: each command as it stands there, against a fleet with real containers, or one that
only keeps the books where a guide is about many machines. Other guides are walked by the tests of what they are
about."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.engines import probe_image
from tests.support.fleet import Fleet
from tests.support.git import bare_repository
from tests.support.guides import FENCE, ROOT
from tests.support.podman import podman
from tests.support.ports import free_port
from tests.support.processes import Machine, start_up
from tests.support.registry import RunningRegistry
from tests.support.walking import LONG, Guide, walk

COMPOSE = """
services:
  web:
    image: {image}
    environment: {{PORT: "8080", GREETING: "${{GREETING:-hello}}"}}
    ports: ["127.0.0.1:${{PORT:-{port}}}:8080"]
"""


def block_of(page: str, containing: str) -> str:
    """The block of a page with these words: a file that it tells people to write."""
    found = [block for block in FENCE.finditer((ROOT / page).read_text("utf-8")) if containing in block.group(3)]
    return found[0].group(3)


@pytest.fixture
def image(registry: RunningRegistry) -> Iterator[str]:
    with probe_image(registry.host) as reference:
        yield reference


@LONG
def test_the_first_guides_do_what_they_say(
    host: Machine, apps: Path, registry: RunningRegistry, node_prefix: str, tmp_path: Path
) -> None:
    """The tutorial, README, updates, the first app, a push to Git, exports, charts, publishing: on one machine."""
    port, other = free_port(), free_port()
    node, walks = f"{node_prefix}-laptop", tmp_path / "walks"
    own = f"127.0.0.1:{free_port()}"
    start_up(host, node=node, extra=("--registry", own))
    host.homeport("apps", "add", str(apps))
    host.homeport("deploy", "hello@1.0.0", "--set", f"port={port}")

    said = walk(
        Guide(
            "README.md",
            replaced={'"$PWD/.venv/bin:$PATH"': '"$PATH"'},
            left_out={
                "make": "it is what runs this test, or tests/e2e/test_wheel.py",
                "homeport doctor": "its ports are taken by other tests",
                "homeport up": "it runs already",
                "homeport deploy ./compose.yaml": "walked with the first app",
            },
            exits={"homeport deploy hello@1.1.0 --site home --plan": 6},
        ),
        host,
        walks / "readme",
    )
    assert "INSTALLED" in said["homeport deploy hello@1.1.0 --site home"]
    host.homeport("deploy", "hello@1.0.0")
    said = walk(
        Guide("docs/how-to/update-and-remove.md", exits={"homeport deploy hello@1.1.0 --plan": 6}),
        host,
        walks / "update",
    )
    assert "rolls back to 1.0.0" in said["homeport deployments rollback hello@home"]
    assert not host.json("deployments", "list")["deployments"]
    host.homeport("deploy", "hello@1.0.0", "--set", f"port={port}")

    said = walk(
        Guide(
            "docs/tutorial.md",
            replaced={
                '"$PWD/.venv/bin:$PATH"': '"$PATH"',
                "18080": str(port),
                ".homeport/demo/data": str(host.folder / "up"),
                "/tmp/fleet": "fleet",
            },
            left_out={"make demo": "it is walked by make demo itself, in continuous integration"},
            exits={"homeport deploy hello@1.1.0 --site home --set greeting=Ahoy --plan": 6},
        ),
        host,
        walks / "tutorial",
    )
    assert "Ahoy" in said["curl http://127.0.0.1:18080"]
    assert "exit code 1" in said['homeport deploy broken --site home --retries 0; echo "exit code $?"']
    assert len(said["ls /tmp/fleet/deployments/home"].split()) >= 2
    host.homeport("deployments", "delete", "broken@home", "--wait")

    walk_git_push(host, walks, port, other)
    walk_first_app(host, registry, walks, own)

    walk(
        Guide("docs/how-to/export-history.md", replaced={"line-7": "home"}),
        host,
        walks / "export",
    )
    assert (walks / "export" / "steps.jsonl").read_text().count("\n") > 5
    assert '"kind"' in (walks / "export" / "events.jsonl").read_text()
    said = walk(
        Guide(
            "docs/how-to/helm-without-kubernetes.md",
            replaced={" --set greeting": f" --set port={free_port()} --set greeting"},
        ),
        host,
        walks / "helm",
    )
    assert "INSTALLED" in said["homeport deploy greeter --site home --set greeting=Moin --wait"]
    walk_publishing(host, apps, registry, walks)


def walk_git_push(host: Machine, walks: Path, port: int, other: int) -> None:
    said = walk(
        Guide(
            "docs/how-to/deploy-with-git-push.md",
            replaced={"http://127.0.0.1:8080": host.url, "18080": str(port), "18082": str(other)},
        ),
        host,
        walks / "push",
        **{f"GIT_{who}_{what}": "ada@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    )
    assert "main" in said['git add . && git commit -m "deploy it" && git push']
    host.wait_for(
        lambda: (
            {each["name"]: each["state"] for each in host.json("deployments", "list")["deployments"]}.get("hello-too")
            == "INSTALLED"
        )
    )
    host.homeport("deployments", "delete", "hello-too@home", "--wait")


def walk_first_app(host: Machine, registry: RunningRegistry, walks: Path, own: str) -> None:
    first, second, third = free_port(), free_port(), free_port()
    hello = f"{registry.host}/demo/hello:1.0.0"
    shop = walks / "first" / "shop"
    shop.mkdir(parents=True)
    (shop / "compose.yaml").write_text(COMPOSE.format(image=hello, port=first))
    change = "echo '# changed' >> compose.yaml; echo 'x-note: changed' >> compose.yaml"
    said = walk(
        Guide(
            "docs/first-app.md",
            replaced={
                "PORT=9000": f"PORT={second}",
                "./shop ": ". ",
                "nginx:1.25": hello,
                "8080:80 ": f"{third}:8080 ",
                "http://127.0.0.1:8080/": f"http://127.0.0.1:{third}/healthz",
                " -e LEVEL": " --app-name clock -e LEVEL",
            },
            left_out={
                "homeport deploy oci://": "walked by tests/e2e/test_helm.py",
                "homeport deploy ./compose.yaml --site north": "there is one site here",
            },
            before={"homeport deploy ./compose.yaml --plan": change},
            exits={"homeport deploy ./compose.yaml --plan": 6},
        ),
        host,
        walks / "first",
    )
    assert "1.0.0 → 1.0.1" in said["homeport deploy ./compose.yaml --plan"]
    assert "GREETING" in said["homeport apps show shop"]
    assert "INSTALLED" in next(text for command, text in said.items() if "--image" in command)
    for name in ("shop@home", "clock@home"):
        host.homeport("deployments", "delete", name, "--wait", "--remove-data")


def walk_publishing(host: Machine, apps: Path, registry: RunningRegistry, walks: Path) -> None:
    folder = walks / "publish"
    folder.mkdir(parents=True)
    said = walk(
        Guide(
            "docs/how-to/publish-an-app.md",
            replaced={"registry.example.org": registry.host, "https://git.example.org/apps.git": "."},
            before={
                "homeport apps validate": f"mkdir demo && cp -r {apps}/demo/hello demo/",
                "homeport apps add": "git init -q . && git add demo"
                " && git -c user.name=a -c user.email=a@b commit -qm apps",
            },
        ),
        host,
        folder,
    )
    assert "is valid" in said["homeport apps validate demo/hello/1.0.0"]
    assert "greeting" in said["homeport apps show hello"]
    said = walk(
        Guide(
            "docs/how-to/use-margo.md",
            replaced={
                "registry.example/acme/vision": f"{registry.host}/apps/hello",
                ":2.1.0": ":1.0.0",
            },
            left_out={"homeport site --name north --source margo": "walked by tests/integration/margo"},
        ),
        host,
        folder,
    )
    assert "1.0.0" in said["homeport apps versions oci://registry.example/acme/vision"]


@LONG
def test_the_guides_about_running_things_do_what_they_say(
    host: Machine, apps: Path, registry: RunningRegistry, node_prefix: str, image: str, tmp_path: Path
) -> None:
    """Jobs, pipelines, logs, containers, secrets, a single image and the registry: on one machine."""
    node, walks = f"{node_prefix}-pi", tmp_path / "walks"
    own = f"127.0.0.1:{free_port()}"
    start_up(host, node=node, extra=("--registry", own))
    host.homeport("apps", "add", str(apps))
    port = free_port()
    host.homeport("deploy", "hello@1.0.0", "--set", f"port={port}")
    job = walk_jobs(host, walks, node, image)
    walk_pipelines(host, walks, node, image)
    walk(
        Guide(
            "docs/how-to/read-logs.md",
            replaced={"--node pi": f"--node {node}", "node/pi": f"node/{node}", "3f2a…": job},
        ),
        host,
        walks / "logs",
    )
    walk(
        Guide(
            "docs/how-to/reach-a-container.md",
            replaced={"shop@home": "hello@home", "-- env": "-- /bin/busybox env", "9000": str(free_port())},
            left_out={
                "homeport exec shop@home -it": "it needs a terminal, as in tests/e2e/test_reach.py",
                "homeport exec hello@home -it": "it needs a terminal, as in tests/e2e/test_reach.py",
                "homeport exec shop@north": "there is no database here",
            },
        ),
        host,
        walks / "reach",
    )
    walk_watching(host, walks, node)
    clock = free_port()
    said = walk(
        Guide(
            "docs/how-to/run-a-single-image.md",
            replaced={
                "registry.example/team/clock:1.0.0": f"{registry.host}/demo/hello:1.0.0 --app-name clock",
                "8080:8080": f"{clock}:8080",
                "127.0.0.1:8080": f"127.0.0.1:{clock}",
            },
        ),
        host,
        walks / "single",
    )
    assert all("INSTALLED" in text for text in said.values())
    walk(
        Guide(
            "docs/how-to/use-secrets.md",
            replaced={
                "homeport secrets set": "printf hunter2 | homeport secrets set",
                "deploy shop": "deploy guarded",
            },
        ),
        host,
        walks / "secrets",
    )
    walk_registry(host, walks, own, registry, apps)


def walk_watching(host: Machine, walks: Path, node: str) -> None:
    said = walk(
        Guide(
            "docs/how-to/see-what-machines-use.md",
            replaced={"laptop": node, "http://127.0.0.1:8080": host.url, "curl ": "curl --fail --silent "},
        ),
        host,
        walks / "use",
    )
    assert node in said["homeport top"]
    assert '"times"' in next(text for command, text in said.items() if "metric=cpu_percent" in command)
    said = walk(
        Guide("docs/reference/metrics.md", replaced={"http://127.0.0.1:8080": host.url, "curl -s": "curl --fail -s"}),
        host,
        walks / "metrics",
    )
    assert "homeport_deployments" in next(text for command, text in said.items() if "curl" in command)
    said = walk(Guide("docs/how-to/use-the-dashboard.md"), host, walks / "dashboard", BROWSER="true")
    assert host.url in said["homeport dashboard --print-url"]


def walk_jobs(host: Machine, walks: Path, node: str, image: str) -> str:
    """The id of a job that wrote something."""
    host.homeport(
        *("jobs", "run", "--image", image, "--artifact", "/out/model.json", "--id", "trained", "--"),
        *("/bin/sh", "-c", "mkdir /out; echo '{}' > /out/model.json; echo trained"),
    )
    host.homeport("jobs", "run", "--detach", "--id", "long", "--image", image, "--", "/bin/sh", "-c", "sleep 600")
    said = walk(
        Guide(
            "docs/how-to/run-jobs.md",
            replaced={
                "debian:12": image,
                "backup:1": image,
                "-- sh": "-- /bin/sh",
                "pi-4": node,
                "cancel ID": "cancel long",
                "ID": "trained",
            },
            left_out={
                "homeport jobs run -l zone=cellar": "there is no GPU here, and it is refused",
                "homeport jobs run --model": "no model is served; tests/e2e/test_pipelines.py asks one",
                "homeport central --grpc": "tests/integration/central/test_grpc_access.py has a certificate",
                "grpcurl": "it is not installed",
            },
            before={"homeport jobs run --image backup:1": "printf key | homeport secrets set home s3-key"},
        ),
        host,
        walks / "jobs",
    )
    assert "hello" in said["homeport jobs run --image debian:12 -- sh -c 'echo hello; date'"]
    assert "Linux" in said["homeport jobs run --node pi-4 -- uname -a"]
    assert (walks / "jobs" / "model.json").read_text().strip() == "{}"
    return "trained"


def walk_pipelines(host: Machine, walks: Path, node: str, image: str) -> None:
    page, folder = "docs/how-to/run-pipelines.md", walks / "pipelines"
    folder.mkdir(parents=True)
    (folder / "check.yaml").write_text(
        block_of(page, "# check.yaml").replace("busybox:1", image).replace("90", "101")
    )
    steps = f"steps:\n  tell:\n    job: {{image: '{image}', command: [/bin/sh, -c, echo night]}}\n"
    (folder / "nightly.yaml").write_text(block_of(page, "name: nightly") + steps)
    walk(
        Guide(
            page,
            replaced={
                '["pi-1", "pi-2"]': f'["{node}"]',
                '["pi-1"]': f'["{node}"]',
                "RUN": "$RUN",
                "curl ": "curl --fail ",
            },
            before={
                "homeport pipelines show RUN": "RUN=$(homeport pipelines list -q | head -1)",
                "homeport pipelines save nightly.yaml  ": "printf hook | homeport secrets set home hook-key",
                "body=": "homeport pipelines save nightly.yaml",
            },
        ),
        host,
        folder,
        HOOK_KEY="hook",
    )


def walk_registry(host: Machine, walks: Path, own: str, registry: RunningRegistry, apps: Path) -> None:
    folder = walks / "registry"
    folder.mkdir(parents=True)
    (folder / "Containerfile").write_text(f"FROM {registry.host}/demo/hello:1.0.0\n")
    podman("pull", "--tls-verify=false", f"{registry.host}/demo/hello:1.0.0")
    chart = "helm create web >/dev/null && helm package web --version 1.0.0"
    my_app = f"cp -r {apps}/demo/hello/1.0.0 my-app && sed -i 's#{registry.host}#{own}#' my-app/margo.yaml"
    try:
        walk(
            Guide(
                "docs/how-to/use-the-built-in-registry.md",
                replaced={
                    "127.0.0.1:5000": own,
                    "--tls-verify=false  ": '--tls-verify=false --password "$(homeport token)"  ',
                    "--username me --insecure": '--username me --insecure --password "$(homeport token)"',
                },
                left_out={
                    "docker login": "there may be no Docker here",
                    "oras login": "not to be had here; tests/conformance/distribution/test_oras.py has its requests",
                    "skopeo delete": "walked by tests/e2e/test_registry_clients.py",
                    "homeport identity ca": "it is about TLS: tests/e2e/test_remote_central.py",
                    "podman login central.example": "walked by tests/e2e/test_remote_central.py",
                    "helm registry login central.example": "walked by tests/e2e/test_remote_central.py",
                },
                before={"helm push": chart, "homeport apps push": my_app},
            ),
            host,
            folder,
            REGISTRY_AUTH_FILE=str(folder / "auth.json"),
        )
    finally:
        podman("rmi", "--force", f"{own}/shop/web:1.0.0", f"{registry.host}/demo/hello:1.0.0", check=False)


@LONG
def test_the_guides_about_several_sites_do_what_they_say(host: Machine, apps: Path, tmp_path: Path) -> None:
    """Why, drain, hold, waves and the cache, in a fleet whose nodes only keep the books."""
    walks = tmp_path / "walks"
    fleet = Fleet(host, str(bare_repository(tmp_path / "fleet.git")))
    fleet.central()
    for site, nodes in {
        "press-hall": ("press-3", "press-4"),
        "line-1": ("line-1-a",),
        "line-2": ("line-2-a",),
    }.items():
        fleet.site(site)
        for node in nodes:
            fleet.node(node, site)
    host.homeport("apps", "add", str(apps))
    host.homeport("sites", "label", "line-2", "region=eu")
    host.homeport("deploy", "hello@1.0.0", "--site", "press-hall", "--name", "shop", "--place", "one")

    said = walk(Guide("docs/how-to/ask-why.md"), host, walks / "why")
    shown = re.findall(r"^  (\w+)  ", block_of("docs/how-to/ask-why.md", "$ homeport why"), re.MULTILINE)
    for word in shown:
        assert word in said["homeport why shop@press-hall"], f"the page shows a line about {word}"

    said = walk(Guide("docs/how-to/drain-a-node.md"), host, walks / "drain")
    assert "is empty" in said['homeport nodes drain press-3 --reason "new disk" --wait']

    walk(
        Guide(
            "docs/how-to/hold-updates.md", replaced={"2026-03-05T18:00": "$(date -u -d '+2 days' +%Y-%m-%dT%H:%M)"}
        ),
        host,
        walks / "hold",
    )
    walk_waves(host, walks)
    walk(Guide("docs/how-to/site-cache.md", replaced={"north": "line-1"}), host, walks / "cache")


def walk_waves(host: Machine, walks: Path) -> None:
    deploy = "homeport deploy hello@1.1.0 -l region=eu --wave 1 --wave 25% --wave 100% --bake 5m --threshold 90%"
    said = walk(
        Guide(
            "docs/how-to/roll-out-in-waves.md",
            exits={f"{deploy} --plan": 6},
            follows=(deploy,),
        ),
        host,
        walks / "waves",
    )
    assert "line-1" in said[f"{deploy} --plan"]
    assert "1 installed" in said["homeport rollouts show hello"]


def test_two_sites_and_three_nodes_start_on_one_machine(host: Machine, tmp_path: Path) -> None:
    """Each role is started by the guide itself, and an own Git server takes the place of central's."""
    ports = {
        name: str(free_port()) for name in ("8080", "5000", "8181", "8182", "8191", "8192", "8193", "50152", "50153")
    }
    folder = tmp_path / "walk"
    (folder / "hello").mkdir(parents=True)
    page = "docs/how-to/two-sites-three-nodes.md"
    (folder / "hello" / "compose.yaml").write_text(block_of(page, "# hello/compose.yaml"))
    nodes = {f"--id {name}": f"--runtime null --id {name}" for name in ("north-1", "north-2", "south-1")}
    host.url = f"http://127.0.0.1:{ports['8080']}"
    central = f"--http 127.0.0.1:{ports['8080']} --grpc 127.0.0.1:{free_port()}"
    said = walk(
        Guide(page, replaced={**nodes, "--data fleet/central": f"--data fleet/central {central}", **ports}),
        host,
        folder,
    )
    assert all("INSTALLED" in said[f"homeport deploy ./hello --site {end}"] for end in ("south",))
    assert "north-2" in said["homeport --url http://127.0.0.1:8181 nodes list"]


def test_an_own_git_server_holds_the_deployments(host: Machine, tmp_path: Path) -> None:
    repository = bare_repository(tmp_path / "fleet.git")
    options = (
        f"--runtime null --registry off --margo off --data data --http 127.0.0.1:{free_port()}"
        f" --grpc 127.0.0.1:{free_port()}"
    )
    walk(
        Guide(
            "docs/how-to/own-git-server.md",
            replaced={"https://git.example.org/fleet.git": str(repository), "--poll 30": f"--poll 30 {options}"},
            left_out={"homeport doctor": "its ports are taken by other tests"},
        ),
        host,
        tmp_path / "walk",
    )
