"""The guides about machines, walked: joining and security over TLS, several centrals, other engines, traces, models.
`make guides` walks all of them; `make test` those that take seconds."""

import contextlib
import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from tests.support.collector import collector
from tests.support.engines import containerd_daemon, docker_daemon, skip_docker_if_asked
from tests.support.fleet import Fleet
from tests.support.git import bare_repository
from tests.support.ports import free_port
from tests.support.postgres import PostgresServer, running_postgres
from tests.support.processes import Machine, start_up
from tests.support.stage import shared_stage
from tests.support.tiny_model import write_tiny_model
from tests.support.walking import LONG, Guide, walk

LOOPBACK = "--tls --http 127.0.0.1:{http} --grpc 127.0.0.1:{grpc}"
PIN = r"PIN=$(grep -ho 'sha256:[0-9a-f]\{{64\}}' {where} | head -1)"
JOINED = r"JOIN=$(grep -o 'hpj_[A-Za-z0-9_.-]*' line) && PIN=$(grep -o 'sha256:[0-9a-f]\{64\}' line)"


@LONG
def test_the_guide_to_joining_does_what_it_says(host: Machine, tmp_path: Path) -> None:
    """Three machines in one: each has a data folder and ports of its own, on loopback."""
    http, north, north_grpc = free_port(), free_port(), free_port()
    folder = tmp_path / "walk"
    host.url = f"https://127.0.0.1:{http}"
    south = (
        f"(homeport site --name south --central {host.url} --pin $PIN --http 127.0.0.1:{free_port()}"
        f" --grpc 127.0.0.1:{free_port()} --data south > south.log 2>&1 & echo $! > south.pid);"
        ' served="$served $(cat south.pid)";'
        " until homeport sites pending -o json | grep -q sha256:; do sleep 0.2; done;"
        " PIN=$(homeport sites pending -o json | grep -o 'sha256:[0-9a-f]\\{64\\}' | head -1)"
    )
    said = walk(
        Guide(
            "docs/how-to/join-a-site-and-a-node.md",
            replaced={
                "--data /var/lib/homeport --name": "--data central --name",
                "ada --role admin": "ada --role admin | tee token",
                "--data /var/lib/homeport --http 0.0.0.0:8080": "--data central "
                + LOOPBACK.format(http=http, grpc=free_port()),
                "https://central.example:8080": host.url,
                "login https://127.0.0.1:8081": f"login https://127.0.0.1:{north}",
                "--http 0.0.0.0:8081 --grpc 0.0.0.0:50052 --advertise north.example --data /var/lib/homeport": (
                    f"--http 127.0.0.1:{north} --grpc 127.0.0.1:{north_grpc} --data north"
                ),
                "--site north.example:50052": f"--site 127.0.0.1:{north_grpc} --id node-1 --runtime null"
                f" --data node-1 --http 127.0.0.1:{free_port()}",
                "https://north.example:8081": f"https://127.0.0.1:{north}",
                "hpj_…": "$JOIN",
                "sha256:…": "$PIN",
                "approve north": "approve south",
                "join-command north": "join-command north | tee line",
            },
            before={
                "homeport login https://central.example": PIN.format(where="served-*")
                + " && CENTRAL=$PIN && export HOMEPORT_TOKEN=$(grep -o 'hp_[A-Za-z0-9_]*' token | head -1)",
                "homeport site --name": JOINED,
                "homeport login https://127.0.0.1:8081": "unset HOMEPORT_TOKEN;"
                " until homeport nodes join-command north > line; do sleep 0.2; done; " + JOINED,
                "homeport node --site": JOINED,
                "homeport nodes list": "until homeport nodes list | grep -q live; do sleep 0.2; done",
                "homeport sites pending": f"PIN=$CENTRAL; {south}",
            },
        ),
        host,
        folder,
    )
    assert "node-1" in said["homeport nodes list"]
    assert "south" in said["homeport sites pending"]


@LONG
def test_the_page_on_security_does_what_it_says(host: Machine, apps: Path, tmp_path: Path) -> None:
    fleet = TlsFleet(host)
    fleet.start_central("--svid-lifetime", "8", "--bundle-refresh", "1")
    fleet.join_site("north", "--svid-lifetime", "8")
    fleet.join_site("south", "--svid-lifetime", "8")
    for node in ("node-1", "spare-1", "spare-2"):
        fleet.join_node(node, "north")
    host.homeport("apps", "add", str(apps))
    steady = "until homeport identity rotate {step} > step; do sleep 0.5; done; "
    said = walk(
        Guide(
            "docs/security.md",
            replaced={
                "identity remove north ": "identity remove south ",
                "remove node-1 --site": "remove spare-1 --site",
                "nodes remove node-1 ": "nodes remove spare-1 ",
                "remove node-1 --url https://SITE:8081": f"remove spare-2 --url {fleet.urls['north']}",
                "--data DIR": "--data fresh",
                "curl ": "curl --fail --silent --insecure ",
                "http://127.0.0.1:8080": host.url,
                "https://central.example:8080": host.url,
                "sha256:…": fleet.pins["central"],
                "sudo homeport token --data /var/lib/homeport": f"homeport token --data {fleet.data('central')}",
                "homeport secrets set": "printf hunter2 | homeport secrets set",
                "deploy shop": "deploy guarded",
                "--since 2026-03-01": "--since $(date -u +%Y-%m-%d)",
                "1204:9c0c…": "$MARK",
                "rotate switch ": "rotate status ",
                "rotate finish ": "rotate status ",
            },
            left_out={
                "homeport central --svid-dir": "walked by tests/integration/cli/test_outside_identity.py",
                "homeport site --name north --svid-dir": "walked by tests/integration/cli/test_outside_identity.py",
                "homeport node --site north.example:50052 --svid-dir": "walked by the same",
            },
            # Certificates of eight seconds: a site connects again with each new one, and is away for a moment.
            before={
                "homeport identity rotate switch": steady.format(step="switch"),
                "homeport identity rotate finish": steady.format(step="finish"),
                "homeport deploy shop": "homeport nodes remove spare-2",
                "homeport audit verify --head": "MARK=$(homeport audit verify | grep -o '[0-9]*:[0-9a-f]\\{8,\\}')",
            },
        ),
        host,
        tmp_path / "walk",
    )
    assert "switched" in said["homeport identity rotate switch"]
    assert "steady" in said["homeport identity rotate finish"]
    assert "INSTALLED" in said["homeport deploy shop --site north --set password=secret://db-password"]
    assert "deployments" in next(text for command, text in said.items() if command.startswith("curl"))


class TlsFleet:
    """Roles with certificates, joined by the lines that Homeport prints."""

    def __init__(self, host: Machine) -> None:
        self.host = host
        self.urls: dict[str, str] = {}
        self.pins: dict[str, str] = {}

    def data(self, name: str) -> Path:
        return self.host.folder / f"data-{name}"

    def start_central(self, *extra: str) -> None:
        self._start("central", "https", ["central", "--tls", "--grpc", f"127.0.0.1:{free_port()}", *extra])
        self.host.url = self.urls["central"]
        self.host.homeport("login", self.host.url, "--pin", self.pins["central"])

    def join_site(self, name: str, *extra: str) -> None:
        line = self.host.homeport("sites", "join-command", name).split()
        self._start(name, "https", [*line[1:], "--grpc", f"127.0.0.1:{free_port()}", *extra])
        self.host.homeport("login", self.urls[name], "--pin", self.pins[name], "--name", name)

    def join_node(self, name: str, site: str) -> None:
        self.host.wait_for(lambda: self.host.command("nodes", "join-command", site).returncode == 0)
        line = self.host.homeport("nodes", "join-command", site).split()
        self._start(name, "http", [*line[1:], "--id", name, "--runtime", "null"])

    def _start(self, name: str, scheme: str, command: list[str]) -> None:
        options = ("--http", f"127.0.0.1:{free_port()}", "--data", str(self.data(name)))
        process = self.host.start(name, *command, *options, scheme=scheme)
        process.wait_ready()
        self.urls[name] = process.url
        if scheme == "https":
            found = self.host.wait_for(lambda: re.search(r"--pin (sha256:[0-9a-f]{64})", process.log.read_text()))
            self.pins[name] = found[1]


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    stage = shared_stage()
    with contextlib.nullcontext(stage.postgres) if stage else running_postgres() as server:
        yield server


@LONG
def test_two_centrals_start_with_the_line_of_the_guide(
    host: Machine, postgres: PostgresServer, tmp_path: Path
) -> None:
    database = anyio.run(postgres.create_database)
    repository = bare_repository(tmp_path / "fleet.git")
    try:
        for replica in ("one", "two"):
            options = f"--http 127.0.0.1:{free_port()} --grpc 127.0.0.1:{free_port()} --data {replica}"
            walk(
                Guide(
                    "docs/how-to/run-several-centrals.md",
                    replaced={
                        "postgresql://homeport@db/homeport": f"'{postgres.url(database)}'",
                        "https://git.example.org/fleet.git": str(repository),
                        "/etc/homeport/keys": str(tmp_path / "keys"),
                        "--http 0.0.0.0:8080 --data /var/lib/homeport": options,
                    },
                ),
                host,
                tmp_path / "walk",
            )
    finally:
        anyio.run(postgres.drop_database, database)


def test_a_trace_of_homeport_up_reaches_the_collector(host: Machine, tmp_path: Path) -> None:
    with collector() as traces:
        walk(
            Guide(
                "docs/how-to/see-a-deploy-as-one-trace.md",
                replaced={"homeport up --otlp http://127.0.0.1:4318": f"{alone(host)} --otlp {traces.url}"},
                left_out={
                    "pip install": "the packages are there; tests/e2e/test_wheel.py installs the wheel",
                    "docker run": "Jaeger's image cannot be had here",
                },
            ),
            host,
            tmp_path / "walk",
        )
        assert traces.requests


def test_a_port_for_agents_of_orchion_opens(host: Machine, tmp_path: Path) -> None:
    port = free_port()
    said = walk(
        Guide(
            "docs/reference/other-names.md",
            replaced={"homeport up --orchion 127.0.0.1:50051": f"{alone(host)} --orchion 127.0.0.1:{port}"},
            left_out={"ssh": "there is no other machine here"},
        ),
        host,
        tmp_path / "walk",
    )
    assert all(" is up" in text for text in said.values())


def alone(host: Machine) -> str:
    """`homeport up` that starts no container, on ports of its own."""
    http = free_port()
    host.url = f"http://127.0.0.1:{http}"
    return (
        f"homeport up --runtime null --registry off --margo off --data up"
        f" --http 127.0.0.1:{http} --grpc 127.0.0.1:{free_port()}"
    )


def doctor() -> str:
    """It looks at ports, and those of other tests are taken."""
    return f"homeport doctor --http 127.0.0.1:{free_port()} --grpc 127.0.0.1:{free_port()}"


@LONG
def test_docker_runs_what_the_guide_starts(host: Machine, tmp_path: Path) -> None:
    skip_docker_if_asked()
    stage = shared_stage()
    with contextlib.ExitStack() as stack:
        socket = Path(stage.docker_socket) if stage and stage.docker_socket else stack.enter_context(docker_daemon())
        http, grpc = free_port(), free_port()
        host.url = f"http://127.0.0.1:{http}"
        host.environment = {"DOCKER_HOST": f"unix://{socket}"}
        said = walk(
            Guide(
                "docs/how-to/use-docker.md",
                replaced={
                    "homeport doctor": doctor(),
                    "homeport up": f"homeport up --data up --registry off --margo off --node first"
                    f" --http 127.0.0.1:{http} --grpc 127.0.0.1:{grpc}",
                    "homeport node --site 127.0.0.1:50052": f"homeport node --site 127.0.0.1:{grpc} --id second"
                    f" --data second --http 127.0.0.1:{free_port()}",
                },
            ),
            host,
            tmp_path / "walk",
        )
        assert "docker" in said["homeport doctor --runtime docker"]


@LONG
def test_containerd_runs_what_the_guide_starts(host: Machine, tmp_path: Path) -> None:
    stage = shared_stage()
    with contextlib.ExitStack() as stack:
        socket = Path(stage.containerd_socket) if stage else stack.enter_context(containerd_daemon())
        fleet = Fleet(host, str(bare_repository(tmp_path / "fleet.git")))
        fleet.central()
        fleet.site("home")
        host.environment = {"CONTAINERD_ADDRESS": str(socket)}
        said = walk(
            Guide(
                "docs/how-to/use-containerd.md",
                replaced={
                    "homeport doctor": doctor(),
                    "--site 127.0.0.1:50052": f"--site 127.0.0.1:{fleet.grpc['home']} --id small --data small"
                    f" --http 127.0.0.1:{free_port()}",
                },
            ),
            host,
            tmp_path / "walk",
        )
        assert "containerd" in said["homeport doctor --runtime containerd"]


@pytest.fixture
def no_engine_is_left(host: Machine) -> Iterator[None]:
    """Engines outlive Homeport, and so would those of a test that failed."""
    yield
    for state in (host.folder / "up/node/engine-programs").glob("process/*/*/state.json"):
        with contextlib.suppress(OSError, ValueError):
            os.kill(int(json.loads(state.read_text())["pid"]), signal.SIGKILL)


@LONG
@pytest.mark.usefixtures("no_engine_is_left")
def test_the_guide_to_models_does_what_it_says(host: Machine, tmp_path: Path) -> None:
    folder = tmp_path / "walk"
    folder.mkdir()
    start_up(host, runtime="process")
    for name in ("model", "better", "large"):
        write_tiny_model(folder / f"{name}.gguf", context=256)
    said = walk(
        Guide(
            "docs/how-to/serve-a-model.md",
            replaced={"--site plant": "--site home --allow-cpu", "ID": "$ID", "--no-wait": "--no-wait | tee task"},
            left_out={
                "pip install": "the packages are there",
                "homeport up": "it runs already",
                "homeport models serve hf:": "walked by tests/integration/models, with a server of ours",
                "homeport models serve big --site plant --replicas 3": "there is one node here",
                "homeport models serve big --site plant --idle 10m --min-replicas 1 --max-replicas 3": "the same",
                "homeport engines provision": "their images cannot be had here",
                "homeport engines attach": "no Ollama runs here; walked by tests/integration/models",
                "homeport models serve ./model.gguf --mode": "walked by tests/integration/models",
                "cosign": "it is not installed; tests/integration/central/test_model_trust.py signs as it does",
                "homeport models add": "walked by tests/integration/central/test_model_trust.py",
            },
            before={
                "homeport models serve big --site plant --idle": f"homeport models add file:{folder}/large.gguf"
                " --id big",
                "homeport chat": "until homeport chat --model big hi; do sleep 0.3; done",
                "homeport tasks watch": "ID=$(cat task)",
            },
        ),
        host,
        folder,
    )
    assert "big" in said["homeport pools list"]
    assert "big" in said["homeport why tasks/ID"]
