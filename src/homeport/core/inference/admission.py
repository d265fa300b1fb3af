"""Whether a task is accepted, in the order that the contract documents: context, length, deadline, session, budgets,
throttle, model, pin. The first rule that it breaks is its answer. Pure."""

from collections.abc import Callable, Sequence

from homeport.core.inference import sessions
from homeport.core.inference.models.lifecycle import CatalogModel, ModelLifecycle
from homeport.core.inference.sessions import Session
from homeport.core.inference.task import CTX_CAP, MAX_TOKENS_CAP, PoolPlacementMode, Refusal, Task, TaskCode
from homeport.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What admission knows, apart from the task itself."""

    session: Session | None = None
    ctx_limit: int | None = None
    """The largest context of the replicas that serve the model; None where they do not say."""
    pool_ids: Sequence[str] = ()
    waiting_of_key: int = 0
    key_waiting_max: int = 512
    key_wait_seconds: float = 0.0
    """Until the key's rate lets it submit again."""
    model: CatalogModel | None = None
    """None where the catalog does not have it: whether a pool serves it decides."""
    predicted_start_ms: int = 0


def refusal(task: Task, situation: Situation) -> Refusal | None:
    return next((found for rule in RULES if (found := rule(task, situation)) is not None), None)


def _context(task: Task, situation: Situation) -> Refusal | None:
    limit = situation.ctx_limit or CTX_CAP
    if task.ctx < 0:
        return _invalid("ctx must not be negative.", "ctx")
    if task.ctx > limit:
        return _invalid(f"ctx is {task.ctx}, and the model's context has {limit} tokens. Ask for less.", "ctx")
    return None


def _length(task: Task, situation: Situation) -> Refusal | None:
    limit = situation.ctx_limit or CTX_CAP
    if not 0 <= task.max_tokens <= MAX_TOKENS_CAP:
        return _invalid(f"max_tokens must be from 0 to {MAX_TOKENS_CAP}.", "max_tokens")
    needed = task.context_tokens
    if needed <= limit:
        return None
    if task.text_tokens_max is not None:
        text = f"The longest text needs about {needed} tokens, and the model's context has {limit}."
        return _invalid(f"{text} Send it in parts.", "inputs")
    text = f"The prompt and max_tokens need about {needed} tokens, and the model's context has {limit}."
    return _invalid(f"{text} Shorten the prompt, or ask for fewer tokens.", "max_tokens")


def _deadline(task: Task, situation: Situation) -> Refusal | None:
    if task.deadline_ms <= 0:
        return Refusal(TaskCode.DEADLINE_UNMET, "deadline_ms must be above 0.", field="deadline_ms")
    if situation.predicted_start_ms > task.deadline_ms:
        return Refusal(
            TaskCode.DEADLINE_UNMET,
            f"It would start in about {situation.predicted_start_ms} ms, and its deadline is {task.deadline_ms} ms.",
            field="deadline_ms",
        )
    return None


def _session(task: Task, situation: Situation) -> Refusal | None:
    return None if situation.session is None else sessions.refusal(situation.session, task)


def _throttle(task: Task, situation: Situation) -> Refusal | None:
    if situation.key_wait_seconds > 0:
        wait_ms = int(1000 * situation.key_wait_seconds) + 1
        return Refusal(
            TaskCode.ADMISSION_REJECT,
            f"This key has made as many requests as its rate allows. Try again in {wait_ms} ms.",
            retry_after_ms=wait_ms,
            policy_label="key.rate",
        )
    if situation.waiting_of_key < situation.key_waiting_max:
        return None
    return Refusal(
        TaskCode.ADMISSION_REJECT,
        f"{situation.waiting_of_key} tasks of this key wait already. Try again when some have ended.",
        retry_after_ms=1000,
        policy_label="queue.reject.key",
    )


def _model(task: Task, situation: Situation) -> Refusal | None:
    model = situation.model
    if model is None:
        return None
    name = model.id[:100]
    if not model.is_read:
        text = "The catalog of models is still being read. Try again in a moment."
        return Refusal(TaskCode.POOL_UNREADY, text, retry_after_ms=1000)
    if model.lifecycle is ModelLifecycle.RETIRED:
        again = "was retired and removed. Use another, or add it again:  homeport models add"
        text = again if model.is_removed else f"is retired. Run  homeport models activate {name}  or use another."
        return Refusal(TaskCode.MODEL_DEPRECATED, f'The model "{name}" {text}', field="model_ref")
    if model.is_verified is False:
        text = f'The content of the model "{name}" does not have its digest. Fetch it again.'
        return Refusal(TaskCode.UNTRUSTED_ARTIFACT, text, field="model_ref")
    if not model.is_trusted:
        text = f'The trust policy does not allow the model "{name}". Run  homeport models show NAME  to see why.'
        return Refusal(TaskCode.UNTRUSTED_ARTIFACT, text, field="model_ref")
    return None


def _pin(task: Task, situation: Situation) -> Refusal | None:
    wish = task.wish
    if wish.mode is not PoolPlacementMode.PIN:
        return None
    if not wish.pin_pool_id:
        text = "placement.pin_pool_id is missing. Name the pool, or use another mode than pin."
        return _invalid(text, "placement.pin_pool_id")
    if wish.pin_pool_id not in situation.pool_ids:
        return _invalid(f'There is no pool "{wish.pin_pool_id[:100]}".', "placement.pin_pool_id")
    return None


def _invalid(message: str, field: str) -> Refusal:
    return Refusal(TaskCode.INVALID_PARAMS, message, field=field)


RULES: tuple[Callable[[Task, Situation], Refusal | None], ...] = (
    _context,
    _length,
    _deadline,
    _session,
    _throttle,
    _model,
    _pin,
)
