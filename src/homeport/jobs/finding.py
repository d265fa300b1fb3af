"""Finds a job by what a person typed, and tells how much of its output there is."""

from dataclasses import replace

from homeport.core.jobs.job import ENDED, Job, JobSpec
from homeport.errors import Conflict, NotFound
from homeport.fleet.shared.scope import ReadOnly
from homeport.jobs.ports import OutputPart
from homeport.ports import SeenReader
from homeport.vocabulary import ID_PREFIX_LENGTH_MIN, SiteName
from homeport.wire.jobs import spec_to_json

FOUND_MAX = 10


async def find_job(store: ReadOnly, text: str, site: SiteName | None = None) -> Job:
    """Raises NotFound, and Conflict where several match."""
    async with store.read() as reader:
        found = [job for job in await reader.jobs_called(text, limit=FOUND_MAX) if site in (None, job.site)]
    exact = [job for job in found if job.id == text]
    if len(exact) == 1:
        return exact[0]
    if len(exact) > 1:
        places = ", ".join(job.site for job in exact)
        raise Conflict(f'There is a job "{text}" at {places}.', hint="Say which one with  --site .")
    if not found or len(text) < ID_PREFIX_LENGTH_MIN:
        raise NotFound(f'There is no job "{text}".', hint="List them:  homeport jobs list")
    if len(found) > 1:
        raise Conflict(f'"{text}" fits {len(found)} jobs.', hint="Write more of its id.")
    return found[0]


async def kept_output(reader: SeenReader, job: Job, *, after: int, generation: int) -> OutputPart:
    """From the record: the end of the output of the newest attempt."""
    content = await reader.job_file(job, "") or b""
    start = max(0, job.output_bytes - len(content))
    wanted = after if generation == job.generation else 0
    text = content[max(0, wanted - start) :].decode(errors="ignore")
    return OutputPart(job, text, max(start, wanted), job.generation, is_complete=job.state in ENDED)


def joined(kept: OutputPart, text: str, start: int) -> OutputPart:
    """What is known of the output from `start` on, and the end that is kept. Where something is missing in between,
    what comes before that: the next part begins behind it."""
    content = text.encode()
    if start >= kept.start:
        return kept
    if start + len(content) < kept.start:
        return replace(kept, text=text, start=start, is_complete=False)
    end = kept.text.encode()[start + len(content) - kept.start :]
    return replace(kept, text=text + end.decode(errors="ignore"), start=start)


def same_job(known: Job, spec: JobSpec) -> Job:
    """Raises Conflict where the known job of this id is another one."""
    if spec_to_json(known.spec) != spec_to_json(spec):
        raise Conflict(
            f'There is already a job "{known.id}", and it runs something else.',
            hint="Choose another id, or leave it out.",
        )
    return known
