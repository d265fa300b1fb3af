"""What a site keeps about instances beside their state is a row for each: it was three texts, written whole at each
change."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_COLUMNS = ("name", "deployment_id", "node_id", "value")

Rows = Iterator[tuple[str, str, Any]]


def upgrade() -> None:
    table = op.create_table(
        "instance_values",
        *(sa.Column(name, _TEXT, nullable=False) for name in _COLUMNS),
        sa.PrimaryKeyConstraint(*_COLUMNS[:3], name="pk_instance_values"),
    )
    before = sa.table("role_values", sa.column("key"), sa.column("value"))
    for name, read in _READERS.items():
        texts = op.get_bind().execute(sa.select(before.c.value).where(before.c.key == name)).scalars()
        rows = [
            dict(zip(_COLUMNS, (name, deployment, node, json.dumps(value)), strict=True))
            for text in texts
            for (deployment, node), value in _readable(text, read).items()
        ]
        op.bulk_insert(table, rows)
        op.execute(sa.delete(before).where(before.c.key == name))


def _readable(text: Any, read: Callable[[Any], Rows]) -> dict[tuple[str, str], Any]:
    """What a site could not read was as if it had nothing; a site can do without, and orders again where needed."""
    try:
        return {(str(deployment), str(node)): value for deployment, node, value in read(json.loads(text or "[]"))}
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return {}


def _pairs(body: Any) -> Rows:
    yield from body


def _traces(body: Any) -> Rows:
    if body:
        for deployment, context in body["deployments"].items():
            yield deployment, "", context
        for deployment, node, *order in body["orders"]:
            yield deployment, node, order


_READERS: dict[str, Callable[[Any], Rows]] = {"secrets_given": _pairs, "seconds_spent": _pairs, "traces": _traces}
