"""Deployment files as a person would write them by hand."""

import uuid

TEMPLATE = """\
id: {id}
metadata:
  name: {name}
  namespace: default
  deviceId: {site}
spec:
  applicationId: {name}
  deploymentProfile:
    type: {type}
    components:
      - name: web
        properties:
          repository: oci://127.0.0.1:5005/demo/{name}
          revision: "{version}"
          wait: true
          timeout: 1m0s
  parameters:
    greeting:
      value: {greeting}
      targets:
        - pointer: GREETING
          components: [web]
"""


def deployment_file(
    *,
    name: str = "hello",
    site: str = "home",
    version: str = "1.0.0",
    greeting: str = "Ahoy",
    profile_type: str = "compose",
    deployment_id: str | None = None,
    placement: str = "",
) -> tuple[str, str]:
    """Path and text of a deployment file. `placement` is YAML: `{mode: one}`."""
    key = deployment_id or str(uuid.uuid4())
    text = TEMPLATE.format(id=key, name=name, site=site, version=version, greeting=greeting, type=profile_type)
    if placement:
        text += f"  x-homeport-extensions:\n    placement: {placement}\n"
    return f"deployments/{site}/{key}.yaml", text
