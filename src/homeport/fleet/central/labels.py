"""Labels of sites, changed in Git like all desired state."""

from collections.abc import Mapping

from homeport.catalog.deployment import marker_path
from homeport.catalog.marker import LABELS_MAX, render_marker
from homeport.core.model.caller import Caller
from homeport.core.model.event import Site
from homeport.core.values.selectors import label_problem
from homeport.errors import InvalidInput, Problem
from homeport.fleet.central.deploy import GitWriter, check_folders
from homeport.fleet.shared.overview import find_site
from homeport.fleet.shared.snapshot import FILE_SIZE_MAX, is_marked, site_folder
from homeport.log import get_log
from homeport.ports import Change, Proposal
from homeport.vocabulary import Commit

log = get_log("homeport.fleet.central.labels")


async def label_site(text: str, changes: Mapping[str, str | None], caller: Caller, git_writer: GitWriter) -> Site:
    """Sets each label, or removes those that are None; the others stay. Returns when it is pushed and indexed."""
    problems = [
        Problem(f"labels.{key}", message)
        for key, value in changes.items()
        if (message := label_problem(key, value or "")) is not None
    ]
    if problems:
        raise InvalidInput(problems=problems)
    async with git_writer.store.read() as reader:
        site = await find_site(reader, text)

    async def decide(head: Commit | None) -> Proposal:
        async with git_writer.store.read() as reader:
            known = await find_site(reader, site.name)
        merged = {**known.labels, **changes}
        labels = {key: value for key, value in merged.items() if value is not None}
        if len(labels) > LABELS_MAX:
            raise InvalidInput(problems=[Problem("labels", f"A site has at most {LABELS_MAX} labels.")])
        path = marker_path(site.name)
        there = (
            () if head is None else await git_writer.git.files(head, site_folder(site.name), size_max=FILE_SIZE_MAX)
        )
        await check_folders(git_writer, head, [] if is_marked(site.name, there) else [site.name])
        return Proposal([Change(path, render_marker(site.name, labels))], f"label {site.name}")

    if await git_writer.write(decide, author=caller.name) is not None:
        log.info("site labels changed", site=site.name, by=caller.name)
    async with git_writer.store.read() as reader:
        return await find_site(reader, site.name)
