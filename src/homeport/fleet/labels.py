"""Labels of sites, changed in Git like everything that is wanted."""

from collections.abc import Mapping, Sequence

import structlog

from homeport.catalog.deployment import marker_path
from homeport.catalog.marker import LABELS_MAX, render_marker
from homeport.core.model.caller import Caller
from homeport.core.model.event import Site
from homeport.core.selectors import label_problem
from homeport.errors import InvalidInput, Problem
from homeport.fleet.deploy import Desk, check_folders
from homeport.fleet.overview import find_site
from homeport.fleet.snapshot import FILE_SIZE_MAX, site_folder
from homeport.ports import Change
from homeport.vocabulary import Commit

log = structlog.get_logger("homeport.fleet.labels")


async def label_site(text: str, changes: Mapping[str, str | None], caller: Caller, desk: Desk) -> Site:
    """Sets each label, or removes those that are None; the others stay. Returns when it is pushed and shown."""
    problems = [
        Problem(f"labels.{key}", message)
        for key, value in changes.items()
        if (message := label_problem(key, value or "")) is not None
    ]
    if problems:
        raise InvalidInput(problems=problems)
    async with desk.store.read() as reader:
        site = await find_site(reader, text)

    async def decide(head: Commit | None) -> Sequence[Change]:
        if head is not None:
            await desk.index.follow(head)
        async with desk.store.read() as reader:
            known = await find_site(reader, site.name)
        merged = {**known.labels, **changes}
        labels = {key: value for key, value in merged.items() if value is not None}
        if len(labels) > LABELS_MAX:
            raise InvalidInput(problems=[Problem("labels", f"A site has at most {LABELS_MAX} labels.")])
        path = marker_path(site.name)
        there = () if head is None else await desk.git.files(head, site_folder(site.name), size_max=FILE_SIZE_MAX)
        await check_folders(desk, [] if any(file.path == path for file in there) else [site.name])
        return [Change(path, render_marker(site.name, labels))]

    commit = await desk.git.commit(decide, message=f"label {site.name}", author=caller.name)
    if commit is not None:
        await desk.index.follow(commit)
        desk.calls.tell(commit)
        log.info("site labelled", site=site.name, by=caller.name)
    async with desk.store.read() as reader:
        return await find_site(reader, site.name)
