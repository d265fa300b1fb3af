from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Gpu(_message.Message):
    __slots__ = ("model", "manufacturer", "memory_bytes")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MANUFACTURER_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    model: str
    manufacturer: str
    memory_bytes: int
    def __init__(self, model: _Optional[str] = ..., manufacturer: _Optional[str] = ..., memory_bytes: _Optional[int] = ...) -> None: ...

class Capabilities(_message.Message):
    __slots__ = ("cpu_cores", "memory_bytes", "disk_bytes", "disk_free_bytes", "os", "architecture", "engine", "engine_version", "profile_types", "gpus")
    CPU_CORES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    OS_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURE_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    ENGINE_VERSION_FIELD_NUMBER: _ClassVar[int]
    PROFILE_TYPES_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    cpu_cores: int
    memory_bytes: int
    disk_bytes: int
    disk_free_bytes: int
    os: str
    architecture: str
    engine: str
    engine_version: str
    profile_types: _containers.RepeatedScalarFieldContainer[str]
    gpus: _containers.RepeatedCompositeFieldContainer[Gpu]
    def __init__(self, cpu_cores: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., disk_bytes: _Optional[int] = ..., disk_free_bytes: _Optional[int] = ..., os: _Optional[str] = ..., architecture: _Optional[str] = ..., engine: _Optional[str] = ..., engine_version: _Optional[str] = ..., profile_types: _Optional[_Iterable[str]] = ..., gpus: _Optional[_Iterable[_Union[Gpu, _Mapping]]] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("id", "hostname", "capabilities", "last_seen_ms", "labels", "software_version", "liveness", "site", "protocol", "features", "agent_address")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_MS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_VERSION_FIELD_NUMBER: _ClassVar[int]
    LIVENESS_FIELD_NUMBER: _ClassVar[int]
    SITE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    AGENT_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    id: str
    hostname: str
    capabilities: Capabilities
    last_seen_ms: int
    labels: _containers.ScalarMap[str, str]
    software_version: str
    liveness: str
    site: str
    protocol: int
    features: _containers.RepeatedScalarFieldContainer[str]
    agent_address: str
    def __init__(self, id: _Optional[str] = ..., hostname: _Optional[str] = ..., capabilities: _Optional[_Union[Capabilities, _Mapping]] = ..., last_seen_ms: _Optional[int] = ..., labels: _Optional[_Mapping[str, str]] = ..., software_version: _Optional[str] = ..., liveness: _Optional[str] = ..., site: _Optional[str] = ..., protocol: _Optional[int] = ..., features: _Optional[_Iterable[str]] = ..., agent_address: _Optional[str] = ...) -> None: ...

class RegisterNodeRequest(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: Node
    def __init__(self, node: _Optional[_Union[Node, _Mapping]] = ...) -> None: ...

class RegisterNodeResponse(_message.Message):
    __slots__ = ("site", "heartbeat_seconds")
    SITE_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    site: str
    heartbeat_seconds: float
    def __init__(self, site: _Optional[str] = ..., heartbeat_seconds: _Optional[float] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("node_id",)
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    def __init__(self, node_id: _Optional[str] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UpdateNodeRequest(_message.Message):
    __slots__ = ("node_id", "capabilities")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    capabilities: Capabilities
    def __init__(self, node_id: _Optional[str] = ..., capabilities: _Optional[_Union[Capabilities, _Mapping]] = ...) -> None: ...

class UpdateNodeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UnregisterNodeRequest(_message.Message):
    __slots__ = ("node_id",)
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    def __init__(self, node_id: _Optional[str] = ...) -> None: ...

class UnregisterNodeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListNodesRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListNodesResponse(_message.Message):
    __slots__ = ("nodes", "next_page_token")
    NODES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    next_page_token: str
    def __init__(self, nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Component(_message.Message):
    __slots__ = ("name", "type", "repository", "revision", "environment", "wait", "timeout_seconds", "extensions_json", "secrets", "secret_values")
    class EnvironmentEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class SecretsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class SecretValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_JSON_FIELD_NUMBER: _ClassVar[int]
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    SECRET_VALUES_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    repository: str
    revision: str
    environment: _containers.ScalarMap[str, str]
    wait: bool
    timeout_seconds: float
    extensions_json: str
    secrets: _containers.ScalarMap[str, int]
    secret_values: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., repository: _Optional[str] = ..., revision: _Optional[str] = ..., environment: _Optional[_Mapping[str, str]] = ..., wait: _Optional[bool] = ..., timeout_seconds: _Optional[float] = ..., extensions_json: _Optional[str] = ..., secrets: _Optional[_Mapping[str, int]] = ..., secret_values: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Release(_message.Message):
    __slots__ = ("deployment_id", "name", "revision", "app_version", "components")
    DEPLOYMENT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    APP_VERSION_FIELD_NUMBER: _ClassVar[int]
    COMPONENTS_FIELD_NUMBER: _ClassVar[int]
    deployment_id: str
    name: str
    revision: str
    app_version: str
    components: _containers.RepeatedCompositeFieldContainer[Component]
    def __init__(self, deployment_id: _Optional[str] = ..., name: _Optional[str] = ..., revision: _Optional[str] = ..., app_version: _Optional[str] = ..., components: _Optional[_Iterable[_Union[Component, _Mapping]]] = ...) -> None: ...

class Order(_message.Message):
    __slots__ = ("generation", "deployment_id", "kind", "release", "remove_images", "reason", "traceparent", "limit_seconds", "on_unhealthy", "rejection", "work", "content", "remove_data_of")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENT_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    REMOVE_IMAGES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    LIMIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ON_UNHEALTHY_FIELD_NUMBER: _ClassVar[int]
    REJECTION_FIELD_NUMBER: _ClassVar[int]
    WORK_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    REMOVE_DATA_OF_FIELD_NUMBER: _ClassVar[int]
    generation: int
    deployment_id: str
    kind: str
    release: Release
    remove_images: bool
    reason: str
    traceparent: str
    limit_seconds: float
    on_unhealthy: str
    rejection: Rejection
    work: str
    content: bytes
    remove_data_of: str
    def __init__(self, generation: _Optional[int] = ..., deployment_id: _Optional[str] = ..., kind: _Optional[str] = ..., release: _Optional[_Union[Release, _Mapping]] = ..., remove_images: _Optional[bool] = ..., reason: _Optional[str] = ..., traceparent: _Optional[str] = ..., limit_seconds: _Optional[float] = ..., on_unhealthy: _Optional[str] = ..., rejection: _Optional[_Union[Rejection, _Mapping]] = ..., work: _Optional[str] = ..., content: _Optional[bytes] = ..., remove_data_of: _Optional[str] = ...) -> None: ...

class Rejection(_message.Message):
    __slots__ = ("revision", "failure")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    revision: str
    failure: Failure
    def __init__(self, revision: _Optional[str] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ...) -> None: ...

class Held(_message.Message):
    __slots__ = ("deployment_id", "generation", "kind", "revision", "done", "unhealthy", "unhealthy_since_ms", "good_revision", "rejection", "work", "failed")
    DEPLOYMENT_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    UNHEALTHY_FIELD_NUMBER: _ClassVar[int]
    UNHEALTHY_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    GOOD_REVISION_FIELD_NUMBER: _ClassVar[int]
    REJECTION_FIELD_NUMBER: _ClassVar[int]
    WORK_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    deployment_id: str
    generation: int
    kind: str
    revision: str
    done: bool
    unhealthy: str
    unhealthy_since_ms: int
    good_revision: str
    rejection: Rejection
    work: str
    failed: bool
    def __init__(self, deployment_id: _Optional[str] = ..., generation: _Optional[int] = ..., kind: _Optional[str] = ..., revision: _Optional[str] = ..., done: _Optional[bool] = ..., unhealthy: _Optional[str] = ..., unhealthy_since_ms: _Optional[int] = ..., good_revision: _Optional[str] = ..., rejection: _Optional[_Union[Rejection, _Mapping]] = ..., work: _Optional[str] = ..., failed: _Optional[bool] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("code", "message", "source")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    source: str
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., source: _Optional[str] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("deployment_id", "generation", "step", "component", "message", "at_ms", "bytes_done", "bytes_total", "healthy", "work")
    DEPLOYMENT_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    BYTES_DONE_FIELD_NUMBER: _ClassVar[int]
    BYTES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    HEALTHY_FIELD_NUMBER: _ClassVar[int]
    WORK_FIELD_NUMBER: _ClassVar[int]
    deployment_id: str
    generation: int
    step: str
    component: str
    message: str
    at_ms: int
    bytes_done: int
    bytes_total: int
    healthy: bool
    work: str
    def __init__(self, deployment_id: _Optional[str] = ..., generation: _Optional[int] = ..., step: _Optional[str] = ..., component: _Optional[str] = ..., message: _Optional[str] = ..., at_ms: _Optional[int] = ..., bytes_done: _Optional[int] = ..., bytes_total: _Optional[int] = ..., healthy: _Optional[bool] = ..., work: _Optional[str] = ...) -> None: ...

class Result(_message.Message):
    __slots__ = ("deployment_id", "generation", "kind", "succeeded", "at_ms", "failure", "deleted", "exit_code", "release_runs", "work", "content")
    DEPLOYMENT_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    RELEASE_RUNS_FIELD_NUMBER: _ClassVar[int]
    WORK_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    deployment_id: str
    generation: int
    kind: str
    succeeded: bool
    at_ms: int
    failure: Failure
    deleted: bool
    exit_code: int
    release_runs: bool
    work: str
    content: bytes
    def __init__(self, deployment_id: _Optional[str] = ..., generation: _Optional[int] = ..., kind: _Optional[str] = ..., succeeded: _Optional[bool] = ..., at_ms: _Optional[int] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., deleted: _Optional[bool] = ..., exit_code: _Optional[int] = ..., release_runs: _Optional[bool] = ..., work: _Optional[str] = ..., content: _Optional[bytes] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("node", "held", "boot_id")
    NODE_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    node: Node
    held: _containers.RepeatedCompositeFieldContainer[Held]
    boot_id: str
    def __init__(self, node: _Optional[_Union[Node, _Mapping]] = ..., held: _Optional[_Iterable[_Union[Held, _Mapping]]] = ..., boot_id: _Optional[str] = ...) -> None: ...

class Beat(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class News(_message.Message):
    __slots__ = ("sequence", "progress", "result")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    progress: Progress
    result: Result
    def __init__(self, sequence: _Optional[int] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., result: _Optional[_Union[Result, _Mapping]] = ...) -> None: ...

class Notice(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class Owned(_message.Message):
    __slots__ = ("node_id", "deployment_id", "component")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENT_ID_FIELD_NUMBER: _ClassVar[int]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    deployment_id: str
    component: str
    def __init__(self, node_id: _Optional[str] = ..., deployment_id: _Optional[str] = ..., component: _Optional[str] = ...) -> None: ...

class Found(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Owned]
    def __init__(self, items: _Optional[_Iterable[_Union[Owned, _Mapping]]] = ...) -> None: ...

class LogLine(_message.Message):
    __slots__ = ("at_ms", "source", "level", "text", "fields", "sequence")
    class FieldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    at_ms: int
    source: str
    level: str
    text: str
    fields: _containers.ScalarMap[str, str]
    sequence: int
    def __init__(self, at_ms: _Optional[int] = ..., source: _Optional[str] = ..., level: _Optional[str] = ..., text: _Optional[str] = ..., fields: _Optional[_Mapping[str, str]] = ..., sequence: _Optional[int] = ...) -> None: ...

class Logs(_message.Message):
    __slots__ = ("lines", "dropped", "buffer", "previous")
    LINES_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    lines: _containers.RepeatedCompositeFieldContainer[LogLine]
    dropped: int
    buffer: str
    previous: int
    def __init__(self, lines: _Optional[_Iterable[_Union[LogLine, _Mapping]]] = ..., dropped: _Optional[int] = ..., buffer: _Optional[str] = ..., previous: _Optional[int] = ...) -> None: ...

class Sample(_message.Message):
    __slots__ = ("name", "value", "labels")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: float
    labels: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., value: _Optional[float] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Telemetry(_message.Message):
    __slots__ = ("at_ms", "samples", "dropped")
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    at_ms: int
    samples: _containers.RepeatedCompositeFieldContainer[Sample]
    dropped: int
    def __init__(self, at_ms: _Optional[int] = ..., samples: _Optional[_Iterable[_Union[Sample, _Mapping]]] = ..., dropped: _Optional[int] = ...) -> None: ...

class Replicas(_message.Message):
    __slots__ = ("handoffs_json", "network")
    HANDOFFS_JSON_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    handoffs_json: _containers.RepeatedScalarFieldContainer[str]
    network: str
    def __init__(self, handoffs_json: _Optional[_Iterable[str]] = ..., network: _Optional[str] = ...) -> None: ...

class FromNode(_message.Message):
    __slots__ = ("hello", "beat", "news", "notice", "found", "logs", "telemetry", "replicas")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    NEWS_FIELD_NUMBER: _ClassVar[int]
    NOTICE_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    LOGS_FIELD_NUMBER: _ClassVar[int]
    TELEMETRY_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    beat: Beat
    news: News
    notice: Notice
    found: Found
    logs: Logs
    telemetry: Telemetry
    replicas: Replicas
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., beat: _Optional[_Union[Beat, _Mapping]] = ..., news: _Optional[_Union[News, _Mapping]] = ..., notice: _Optional[_Union[Notice, _Mapping]] = ..., found: _Optional[_Union[Found, _Mapping]] = ..., logs: _Optional[_Union[Logs, _Mapping]] = ..., telemetry: _Optional[_Union[Telemetry, _Mapping]] = ..., replicas: _Optional[_Union[Replicas, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("site", "heartbeat_seconds", "features", "protocol", "tunable", "content_port")
    SITE_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    TUNABLE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_PORT_FIELD_NUMBER: _ClassVar[int]
    site: str
    heartbeat_seconds: float
    features: _containers.RepeatedScalarFieldContainer[str]
    protocol: int
    tunable: Tunable
    content_port: int
    def __init__(self, site: _Optional[str] = ..., heartbeat_seconds: _Optional[float] = ..., features: _Optional[_Iterable[str]] = ..., protocol: _Optional[int] = ..., tunable: _Optional[_Union[Tunable, _Mapping]] = ..., content_port: _Optional[int] = ...) -> None: ...

class Tunable(_message.Message):
    __slots__ = ("heartbeat_seconds", "labels", "log_level", "telemetry_seconds")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    HEARTBEAT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    LOG_LEVEL_FIELD_NUMBER: _ClassVar[int]
    TELEMETRY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    heartbeat_seconds: float
    labels: _containers.ScalarMap[str, str]
    log_level: str
    telemetry_seconds: float
    def __init__(self, heartbeat_seconds: _Optional[float] = ..., labels: _Optional[_Mapping[str, str]] = ..., log_level: _Optional[str] = ..., telemetry_seconds: _Optional[float] = ...) -> None: ...

class Acknowledged(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...

class Farewell(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Orphans(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Owned]
    def __init__(self, items: _Optional[_Iterable[_Union[Owned, _Mapping]]] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("what", "why")
    WHAT_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    what: str
    why: str
    def __init__(self, what: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...

class LogsStored(_message.Message):
    __slots__ = ("buffer", "sequence")
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    buffer: str
    sequence: int
    def __init__(self, buffer: _Optional[str] = ..., sequence: _Optional[int] = ...) -> None: ...

class ToNode(_message.Message):
    __slots__ = ("welcome", "order", "acknowledged", "farewell", "orphans", "refusal", "tunable", "logs_stored")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    FAREWELL_FIELD_NUMBER: _ClassVar[int]
    ORPHANS_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    TUNABLE_FIELD_NUMBER: _ClassVar[int]
    LOGS_STORED_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    order: Order
    acknowledged: Acknowledged
    farewell: Farewell
    orphans: Orphans
    refusal: Refusal
    tunable: Tunable
    logs_stored: LogsStored
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., order: _Optional[_Union[Order, _Mapping]] = ..., acknowledged: _Optional[_Union[Acknowledged, _Mapping]] = ..., farewell: _Optional[_Union[Farewell, _Mapping]] = ..., orphans: _Optional[_Union[Orphans, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., tunable: _Optional[_Union[Tunable, _Mapping]] = ..., logs_stored: _Optional[_Union[LogsStored, _Mapping]] = ...) -> None: ...
