"""Apps whose first version is good and whose later ones fail, each in its own way: in containers, and a program."""

from pathlib import Path

GOOD = "1.0.0"
IMAGE = "127.0.0.1:5005/demo/hello:1.0.0"
PORT_TAKEN = 18999
MISSING, CRASHING, UNHEALTHY, BLOCKED, ENDING, HOOKED = "2.0.1", "2.0.2", "2.0.3", "2.0.4", "2.0.5", "2.0.6"
ABSENT = "2.0.7"
"""Of the program alone."""
ENDS = '["/bin/busybox", "sh", "-c", "echo cannot find my settings; exit 3"]'
FAILS = '["CMD", "/bin/busybox", "false"]'
HOOK = '["/bin/busybox", "true"]'
COMPOSE = {
    GOOD: f"services:\n  prepare:\n    image: {IMAGE}\n    entrypoint: {HOOK}\n"
    f"  main:\n    image: {IMAGE}\n    depends_on:\n      prepare: {{condition: service_completed_successfully}}\n",
    MISSING: "services:\n  main:\n    image: 127.0.0.1:5005/demo/nowhere:2.0.1\n",
    CRASHING: f"services:\n  main:\n    image: {IMAGE}\n    entrypoint: {ENDS}\n    restart: always\n",
    UNHEALTHY: f"services:\n  main:\n    image: {IMAGE}\n    healthcheck:\n      test: {FAILS}\n"
    "      interval: 1s\n      timeout: 2s\n      retries: 2\n",
    BLOCKED: f'services:\n  main:\n    image: {IMAGE}\n    ports: ["127.0.0.1:{PORT_TAKEN}:8080"]\n',
    ENDING: f"services:\n  main:\n    image: {IMAGE}\n    entrypoint: {ENDS}\n",
    HOOKED: f"services:\n  prepare:\n    image: {IMAGE}\n    entrypoint: {ENDS}\n"
    f"  main:\n    image: {IMAGE}\n    depends_on:\n      prepare: {{condition: service_completed_successfully}}\n",
}
DESCRIPTION = """\
apiVersion: v1
id: homeport-test-wobbly
metadata:
  name: Wobbly
  version: "{version}"
  catalog:
    organization:
      - name: Homeport
deploymentProfiles:
  - type: compose
    id: wobbly-compose
    components:
      - name: main
        properties:
          repository: oci://127.0.0.1:5005/test/wobbly
          revision: "{version}"
          wait: true
          timeout: 0m20s
"""
COMMANDS = {GOOD: '[sleep, "3600"]', ENDING: '[sh, -c, "exit 3"]', ABSENT: "[no-such-program-anywhere]"}
PROGRAM = """\
apiVersion: v1
id: homeport-test-wobbly-program
metadata:
  name: Wobbly program
  version: "{version}"
  catalog:
    organization:
      - name: Homeport
deploymentProfiles:
  - type: custom
    id: wobbly-process
    components:
      - name: main
        properties:
          repository: oci://127.0.0.1:5005/test/wobbly-program
          revision: "{version}"
          wait: true
          timeout: 0m20s
        x-homeport-extensions:
          process:
            command: {command}
    deviceConstraints:
      eligibilityRules:
        - labelSelector:
            matchExpressions:
              - key: programs
                operator: In
                values: ["native"]
"""


def write_apps(folder: Path) -> Path:
    for version, compose in COMPOSE.items():
        component = folder / "test" / "wobbly" / version / "components" / "main"
        component.mkdir(parents=True)
        (component / "compose.yaml").write_text(compose)
        (component.parents[1] / "margo.yaml").write_text(DESCRIPTION.format(version=version))
    for version, command in COMMANDS.items():
        package = folder / "test" / "wobbly-program" / version
        package.mkdir(parents=True)
        (package / "margo.yaml").write_text(PROGRAM.format(version=version, command=command))
    return folder
