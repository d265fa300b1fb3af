"""The catalog of a simulated central: one app in many versions. How each behaves is said by its image's tag."""

import random
from datetime import UTC, datetime

from homeport.catalog.description import parse_description
from homeport.ports import AppRecord
from homeport.vocabulary import AppId

CATEGORY, APP = "simulated", "lamp"
ROLLED_OUT = tuple(f"1.0.{number}" for number in range(12))
"""What rollouts bring, each newer than the one before."""
BY_HAND = tuple(f"2.0.{number}" for number in range(6))
"""What people deploy at single sites, so that a file tells who wrote it."""

DESCRIPTION = """\
apiVersion: v1
id: {app}
metadata:
  name: {app}
  version: "{version}"
  catalog:
    organization:
      - name: Acme
deploymentProfiles:
  - type: compose
    id: {app}-compose
    components:
      - name: web
        properties:
          repository: oci://registry.example/{app}
          revision: "{version}-{kind}"
          wait: true
          timeout: 1m0s
"""


def catalog(chance: random.Random) -> dict[AppId, AppRecord]:
    records = [_record(version, chance.choice(_KINDS)) for version in (*ROLLED_OUT, *BY_HAND)]
    return {record.id: record for record in records}


_KINDS = ("ok",) * 9 + ("picky.1", "picky.2", "picky.3", "sick", "gone", "pulls.1", "slow")


def _record(version: str, kind: str) -> AppRecord:
    source = DESCRIPTION.format(app=APP, version=version, kind=kind).encode()
    description = parse_description(source, "margo.yaml", category=CATEGORY)
    return AppRecord(
        id=AppId(f"{APP}-{version}"),
        category=CATEGORY,
        app_name=APP,
        version=version,
        margo_id=description.app.margo_id,
        name=description.app.name,
        vendor=description.app.vendor,
        description="",
        tags=(),
        descriptor=description.descriptor,
        source=source,
        repository="",
        commit=None,
        added_at=datetime(2026, 1, 1, tzinfo=UTC),
        added_by="person",
    )
