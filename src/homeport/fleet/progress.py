"""How the progress of an order is told: as a step in a column, and as an event. Pure."""

from homeport.core.model.event import NewEvent
from homeport.core.model.order import Progress
from homeport.core.model.report import Progressed
from homeport.core.reconcile.plan import Key
from homeport.fleet.record import kind_of
from homeport.vocabulary import SiteName


def key_of(item: Progressed) -> Key:
    return item.progress.deployment_id, item.node_id


def step_text(progress: Progress) -> str:
    """What is going on, short enough for a column: `web: pulling 61 %`."""
    part = f"{progress.component}: " if progress.component else ""
    if progress.bytes_total:
        return f"{part}{progress.step} {100 * progress.bytes_done // progress.bytes_total} %"
    return f"{part}{progress.message or progress.step}"


def progress_event(item: Progressed, site: SiteName, message: str) -> NewEvent:
    """The same at a site and at central, but for the words: each says what its readers do not see beside it."""
    progress = item.progress
    return NewEvent(
        kind_of(progress.step),
        progress.at,
        message,
        site=site,
        deployment_id=progress.deployment_id,
        node_id=item.node_id,
        data={
            "step": progress.step.value,
            "component": progress.component,
            "message": progress.message,
            "bytes_done": progress.bytes_done,
            "bytes_total": progress.bytes_total,
            "generation": progress.generation,
        },
    )
