"""The options of central and of a site about inference: queues, limits of keys and sessions, times."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from homeport.cli.roles.config_file import tune
from homeport.cli.roles.sizes import SIZE
from homeport.core.inference.queue import FullPolicy
from homeport.core.inference.settings import InferenceSettings

Command = Callable[..., None]


def inference_options(command: Command) -> Command:
    """The command gets InferenceSettings as `inference` of `tuned()`."""

    @wraps(command)
    def gathered(
        *,
        task_queue: int,
        task_queue_full: str,
        key_rate: int,
        key_running: int,
        key_waiting: int,
        session_tokens: int | None,
        task_idle: float,
        task_wall: float,
        task_body: int,
        task_disconnect: str,
        task_fake: bool,
        **others: Any,
    ) -> None:
        settings = InferenceSettings(
            queue_capacity=task_queue,
            full_policy=FullPolicy(task_queue_full),
            key_requests_per_minute=key_rate,
            key_running_max=key_running,
            key_waiting_max=key_waiting,
            session_tokens_max=session_tokens,
            idle_seconds=task_idle,
            wall_seconds=task_wall,
            body_bytes_max=task_body,
            cancel_on_disconnect=task_disconnect == "cancel",
            allow_fake=task_fake,
        )
        tune(inference=settings)
        command(**others)

    decorated: Command = gathered
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


def _number(name: str, default: int, text: str, *, least: int) -> Callable[[Command], Command]:
    return click.option(
        name, type=click.IntRange(least, 10_000_000), default=default, show_default=True, metavar="N", help=text
    )


_OPTIONS = (
    _number("--task-queue", 1_024, "Inference tasks that may wait for one pool; 0 for none.", least=0),
    click.option(
        "--task-queue-full",
        type=click.Choice([each.value for each in FullPolicy]),
        default=FullPolicy.REJECT.value,
        show_default=True,
        help="When it is full: refuse the new task, or drop the oldest batch task.",
    ),
    _number("--key-rate", 0, "Inference requests that one key may make in a minute; 0 for any.", least=0),
    _number("--key-running", 0, "Requests of one key that may run at once, others wait; 0 for any.", least=0),
    _number("--key-waiting", 512, "Requests of one key that may wait for one pool.", least=1),
    click.option(
        "--session-tokens",
        type=click.IntRange(1),
        metavar="N",
        help="Tokens that one session of /v2 may generate; any when left out.",
    ),
    click.option(
        "--task-idle",
        type=click.FloatRange(0.1, 3600),
        default=60.0,
        show_default=True,
        metavar="SECONDS",
        help="Timeout for an engine that sends nothing.",
    ),
    click.option(
        "--task-wall",
        type=click.FloatRange(1, 86_400),
        default=600.0,
        show_default=True,
        metavar="SECONDS",
        help="The longest that one task may run.",
    ),
    click.option(
        "--task-disconnect",
        type=click.Choice(["cancel", "finish"]),
        default="cancel",
        show_default=True,
        help="What becomes of a task of /v2 whose event stream its client closes.",
    ),
    click.option(
        "--task-body", type=SIZE, default="32M", show_default=True, help="The largest request with messages or audio."
    ),
    click.option(
        "--task-fake",
        is_flag=True,
        help="For development: POST /v2/workers/register binds an engine that only repeats the prompt.",
    ),
)
