from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LogLevel(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOG_LEVEL_UNSPECIFIED: _ClassVar[LogLevel]
    LOG_LEVEL_DEBUG: _ClassVar[LogLevel]
    LOG_LEVEL_INFO: _ClassVar[LogLevel]
    LOG_LEVEL_WARNING: _ClassVar[LogLevel]
    LOG_LEVEL_ERROR: _ClassVar[LogLevel]
LOG_LEVEL_UNSPECIFIED: LogLevel
LOG_LEVEL_DEBUG: LogLevel
LOG_LEVEL_INFO: LogLevel
LOG_LEVEL_WARNING: LogLevel
LOG_LEVEL_ERROR: LogLevel

class StreamLogsRequest(_message.Message):
    __slots__ = ("site", "node", "kind", "deployment", "component", "job", "level", "since_ms", "until_ms", "text", "tail", "after", "no_follow")
    SITE_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENT_FIELD_NUMBER: _ClassVar[int]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TAIL_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    NO_FOLLOW_FIELD_NUMBER: _ClassVar[int]
    site: str
    node: str
    kind: str
    deployment: str
    component: str
    job: str
    level: LogLevel
    since_ms: int
    until_ms: int
    text: str
    tail: int
    after: int
    no_follow: bool
    def __init__(self, site: _Optional[str] = ..., node: _Optional[str] = ..., kind: _Optional[str] = ..., deployment: _Optional[str] = ..., component: _Optional[str] = ..., job: _Optional[str] = ..., level: _Optional[_Union[LogLevel, str]] = ..., since_ms: _Optional[int] = ..., until_ms: _Optional[int] = ..., text: _Optional[str] = ..., tail: _Optional[int] = ..., after: _Optional[int] = ..., no_follow: _Optional[bool] = ...) -> None: ...

class LogEntry(_message.Message):
    __slots__ = ("id", "at_ms", "level", "site", "node", "source", "text", "fields")
    class FieldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    SITE_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    id: int
    at_ms: int
    level: LogLevel
    site: str
    node: str
    source: str
    text: str
    fields: _containers.ScalarMap[str, str]
    def __init__(self, id: _Optional[int] = ..., at_ms: _Optional[int] = ..., level: _Optional[_Union[LogLevel, str]] = ..., site: _Optional[str] = ..., node: _Optional[str] = ..., source: _Optional[str] = ..., text: _Optional[str] = ..., fields: _Optional[_Mapping[str, str]] = ...) -> None: ...

class StreamLogsResponse(_message.Message):
    __slots__ = ("entry", "missed")
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    entry: LogEntry
    missed: int
    def __init__(self, entry: _Optional[_Union[LogEntry, _Mapping]] = ..., missed: _Optional[int] = ...) -> None: ...

class LogSource(_message.Message):
    __slots__ = ("node", "source")
    NODE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    node: str
    source: str
    def __init__(self, node: _Optional[str] = ..., source: _Optional[str] = ...) -> None: ...

class SentLine(_message.Message):
    __slots__ = ("source", "sequence", "at_ms", "level", "text", "fields")
    class FieldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    source: int
    sequence: int
    at_ms: int
    level: LogLevel
    text: str
    fields: _containers.ScalarMap[str, str]
    def __init__(self, source: _Optional[int] = ..., sequence: _Optional[int] = ..., at_ms: _Optional[int] = ..., level: _Optional[_Union[LogLevel, str]] = ..., text: _Optional[str] = ..., fields: _Optional[_Mapping[str, str]] = ...) -> None: ...

class LogBatch(_message.Message):
    __slots__ = ("buffer", "previous", "sources", "lines")
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    buffer: str
    previous: int
    sources: _containers.RepeatedCompositeFieldContainer[LogSource]
    lines: _containers.RepeatedCompositeFieldContainer[SentLine]
    def __init__(self, buffer: _Optional[str] = ..., previous: _Optional[int] = ..., sources: _Optional[_Iterable[_Union[LogSource, _Mapping]]] = ..., lines: _Optional[_Iterable[_Union[SentLine, _Mapping]]] = ...) -> None: ...

class LogBatchStored(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...
