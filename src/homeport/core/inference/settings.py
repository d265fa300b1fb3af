"""Settings of the task plane."""

from homeport.core.inference.queue import FullPolicy
from homeport.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceSettings:
    queue_capacity: int = 1_024
    """Tasks that wait in each pool, of both priorities together, so that memory stays flat under any load."""
    full_policy: FullPolicy = FullPolicy.REJECT
    """What happens when the queue is full: refuse the newcomer, or drop the oldest batch task."""
    key_waiting_max: int = 512
    """Tasks of one key that may wait in one pool: half the queue, so that one key never fills it."""
    key_requests_per_minute: int = 0
    """How often one key may submit, at any pool; 0 for any. A key that was silent may submit those of ten seconds at
    once. Beyond it the answer is 429 with the time to wait."""
    key_running_max: int = 0
    """Tasks of one key that may run at once, in all pools; 0 for any. The others wait, and let those of other keys
    pass."""
    session_tokens_max: int | None = None
    """Tokens that one session of `/v2` may generate. A client may ask for less with X-Budget-Tokens."""
    body_bytes_max: int = 32 * 1024 * 1024
    """The largest body of a request: messages may carry images."""
    wait_seconds_max: float = 10.0
    """From then on a waiting task is asked first, whatever its priority and model."""
    idle_seconds: float = 60.0
    """How long an engine may say nothing before the task ends with DECODE_TIMEOUT."""
    wall_seconds: float = 600.0
    """The longest that one task may run."""
    slow_client_seconds: float = 30.0
    """How long a client may not read while an engine's slot waits for it."""
    unread_seconds: float = 60.0
    """How long a task may wait for a client to open its stream, once its buffer is full."""
    health_seconds: float = 2.0
    """How often each engine is asked whether it is healthy."""
    cancel_on_disconnect: bool = True
    """A client that closes its event stream cancels its task."""
    transcripts: bool = True
    """Whether tasks of `/v2` leave their transcript as an artifact. Requests of `/v1` never do."""
    allow_fake: bool = False
    """Whether `workers/register` may bind the fake engine; for development."""
