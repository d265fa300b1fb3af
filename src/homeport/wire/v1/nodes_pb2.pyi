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
    __slots__ = ("id", "hostname", "capabilities", "last_seen_ms", "labels", "software_version", "liveness", "site")
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
    id: str
    hostname: str
    capabilities: Capabilities
    last_seen_ms: int
    labels: _containers.ScalarMap[str, str]
    software_version: str
    liveness: str
    site: str
    def __init__(self, id: _Optional[str] = ..., hostname: _Optional[str] = ..., capabilities: _Optional[_Union[Capabilities, _Mapping]] = ..., last_seen_ms: _Optional[int] = ..., labels: _Optional[_Mapping[str, str]] = ..., software_version: _Optional[str] = ..., liveness: _Optional[str] = ..., site: _Optional[str] = ...) -> None: ...

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
    __slots__ = ()
    def __init__(self) -> None: ...

class ListNodesResponse(_message.Message):
    __slots__ = ("nodes",)
    NODES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    def __init__(self, nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ...) -> None: ...

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
    __slots__ = ("generation", "deployment_id", "kind", "release", "remove_images", "reason", "traceparent", "limit_seconds")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENT_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    REMOVE_IMAGES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    LIMIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    generation: int
    deployment_id: str
    kind: str
    release: Release
    remove_images: bool
    reason: str
    traceparent: str
    limit_seconds: float
    def __init__(self, generation: _Optional[int] = ..., deployment_id: _Optional[str] = ..., kind: _Optional[str] = ..., release: _Optional[_Union[Release, _Mapping]] = ..., remove_images: _Optional[bool] = ..., reason: _Optional[str] = ..., traceparent: _Optional[str] = ..., limit_seconds: _Optional[float] = ...) -> None: ...

class Held(_message.Message):
    __slots__ = ("deployment_id", "generation", "kind", "revision", "done")
    DEPLOYMENT_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    deployment_id: str
    generation: int
    kind: str
    revision: str
    done: bool
    def __init__(self, deployment_id: _Optional[str] = ..., generation: _Optional[int] = ..., kind: _Optional[str] = ..., revision: _Optional[str] = ..., done: _Optional[bool] = ...) -> None: ...

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
    __slots__ = ("deployment_id", "generation", "step", "component", "message", "at_ms", "bytes_done", "bytes_total")
    DEPLOYMENT_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    BYTES_DONE_FIELD_NUMBER: _ClassVar[int]
    BYTES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    deployment_id: str
    generation: int
    step: str
    component: str
    message: str
    at_ms: int
    bytes_done: int
    bytes_total: int
    def __init__(self, deployment_id: _Optional[str] = ..., generation: _Optional[int] = ..., step: _Optional[str] = ..., component: _Optional[str] = ..., message: _Optional[str] = ..., at_ms: _Optional[int] = ..., bytes_done: _Optional[int] = ..., bytes_total: _Optional[int] = ...) -> None: ...

class Result(_message.Message):
    __slots__ = ("deployment_id", "generation", "kind", "succeeded", "at_ms", "failure", "deleted", "exit_code", "release_runs")
    DEPLOYMENT_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    RELEASE_RUNS_FIELD_NUMBER: _ClassVar[int]
    deployment_id: str
    generation: int
    kind: str
    succeeded: bool
    at_ms: int
    failure: Failure
    deleted: bool
    exit_code: int
    release_runs: bool
    def __init__(self, deployment_id: _Optional[str] = ..., generation: _Optional[int] = ..., kind: _Optional[str] = ..., succeeded: _Optional[bool] = ..., at_ms: _Optional[int] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., deleted: _Optional[bool] = ..., exit_code: _Optional[int] = ..., release_runs: _Optional[bool] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("node", "held")
    NODE_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    node: Node
    held: _containers.RepeatedCompositeFieldContainer[Held]
    def __init__(self, node: _Optional[_Union[Node, _Mapping]] = ..., held: _Optional[_Iterable[_Union[Held, _Mapping]]] = ...) -> None: ...

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

class FromNode(_message.Message):
    __slots__ = ("hello", "beat", "news")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    NEWS_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    beat: Beat
    news: News
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., beat: _Optional[_Union[Beat, _Mapping]] = ..., news: _Optional[_Union[News, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("site", "heartbeat_seconds")
    SITE_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    site: str
    heartbeat_seconds: float
    def __init__(self, site: _Optional[str] = ..., heartbeat_seconds: _Optional[float] = ...) -> None: ...

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

class ToNode(_message.Message):
    __slots__ = ("welcome", "order", "acknowledged", "farewell")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    FAREWELL_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    order: Order
    acknowledged: Acknowledged
    farewell: Farewell
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., order: _Optional[_Union[Order, _Mapping]] = ..., acknowledged: _Optional[_Union[Acknowledged, _Mapping]] = ..., farewell: _Optional[_Union[Farewell, _Mapping]] = ...) -> None: ...
