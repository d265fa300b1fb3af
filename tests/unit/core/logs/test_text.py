"""What programs write becomes lines that are bounded, safe to print, and keep what they say."""

from datetime import UTC, datetime

import pytest

from homeport.core.logs.gaps import gap
from homeport.core.logs.line import LogLine, LogSeverity
from homeport.core.logs.text import (
    FIELD_LENGTH_MAX,
    FIELDS_MAX,
    TEXT_LENGTH_MAX,
    clean,
    level_in_text,
    parse_line,
    plain,
    read_line_of_job,
)

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def parsed(raw: bytes, **more: object) -> LogLine:
    return parse_line(raw, source="deployment/d/web", at=NOW, **more)  # type: ignore[arg-type]


def test_a_structured_line_keeps_its_fields_level_and_time() -> None:
    line = parsed(b'{"time":"2026-04-30T23:00:00.5+02:00","level":"WARN","msg":"slow","took":12,"user":{"id":1}}')
    assert (line.level, line.text) == (LogSeverity.WARNING, "slow")
    assert line.at == datetime(2026, 4, 30, 21, 0, 0, 500_000, tzinfo=UTC)
    assert line.fields == {"took": "12", "user": '{"id":1}'}


def test_a_line_of_a_job_is_read_like_that_of_a_container() -> None:
    sent = LogLine(NOW, "job/one", "info", '{"level":"error","msg":"\\u001b[31mboom","rows":3}', {"offset": "12"})
    line = read_line_of_job(sent)
    assert (line.level, line.text, line.fields) == (LogSeverity.ERROR, "boom", {"rows": "3", "offset": "12"})
    said = read_line_of_job(sent._replace(text="WARN \x1b[1mdisk full\x07"))
    assert (said.level, said.text, said.fields) == (LogSeverity.WARNING, "WARN disk full\\x07", {"offset": "12"})


def test_only_what_a_job_printed_is_read_again() -> None:
    dropped = gap("job/one", NOW, 3, "INFO it writes too much")
    role = LogLine(NOW, "node", LogSeverity.ERROR, '{"level":"debug"}')
    assert [read_line_of_job(each) for each in (dropped, role)] == [dropped, role]


@pytest.mark.parametrize(
    ("raw", "level"),
    [
        (b'{"level":50,"msg":"x"}', LogSeverity.ERROR),
        (b'{"level":30,"msg":"x"}', LogSeverity.INFO),
        (b'{"severity":"CRITICAL","message":"x"}', LogSeverity.ERROR),
        (b'{"level":"strange","msg":"x"}', LogSeverity.INFO),
        (b'{"level":true,"msg":"x"}', LogSeverity.INFO),
        (b"2026-05-01 12:00:00 ERROR it broke", LogSeverity.ERROR),
        (b'time=2026 level=warning msg="x"', LogSeverity.WARNING),
        (b"[debug] starting", LogSeverity.DEBUG),
        (b"no error here", LogSeverity.INFO),
        (b"", LogSeverity.INFO),
    ],
)
def test_levels_of_common_loggers_are_understood(raw: bytes, level: LogSeverity) -> None:
    assert parsed(raw).level == level


@pytest.mark.parametrize("when", ["1777636800", "1777636800000", "1777636800000000000", '"2026-05-01T12:00:00Z"'])
def test_times_are_read_in_any_unit(when: str) -> None:
    assert parsed(f'{{"ts":{when},"msg":"x"}}'.encode()).at == NOW


@pytest.mark.parametrize("when", ["-5", "1e400", '"yesterday"', '"9999-99-99"', "true", "99999999999999999999999999"])
def test_a_time_that_makes_no_sense_is_not_believed(when: str) -> None:
    assert parsed(f'{{"ts":{when},"msg":"x"}}'.encode()).at == NOW


def test_json_that_is_broken_or_too_deep_is_text() -> None:
    assert parsed(b'{"a":').text == '{"a":'
    deep = b"{" + b'"a":{' * 30_000
    assert parsed(deep).fields == {}


def test_json_that_can_just_be_read_is_shown_without_its_depth() -> None:
    """As deep as a container can make it: the limit of reading is not that of writing."""
    for depth in range(800, 1100):
        line = parsed(b'{"msg":"hello","deep":' + b"[" * depth + b"]" * depth + b"}")
        assert line.text.startswith(("hello", "{"))


def test_escape_sequences_and_control_characters_do_not_reach_a_terminal() -> None:
    assert plain("\x1b[31mred\x1b[0m\x07") == "red\\x07"
    assert plain("\x1b]0;title\x07text") == "text"
    assert plain("tab\tstays") == "tab\tstays"
    assert plain("a\x1bcb") == "a\\x1bcb"
    assert plain("\u202etxt.exe") == "\\u202etxt.exe"
    line = parsed(b'{"msg":"\\u001b[2Jcleared","field\\u001b[2J":"\\u0007"}')
    assert "\x1b" not in repr(line).encode().decode("unicode_escape")


def test_binary_is_shown_and_a_very_long_line_is_cut_with_a_mark() -> None:
    assert parsed(b"\xff\xfe\x00").text == "\\xff\\xfe\\x00"
    long = parsed(b"x" * 60_000, size=1_000_000)
    assert len(long.text) < TEXT_LENGTH_MAX + 100
    assert "cut: the line has 1000000 bytes" in long.text


def test_fields_are_bounded_in_number_and_size() -> None:
    many = ",".join(f'"f{n}":"{"v" * 10_000}"' for n in range(5))
    line = parsed(f'{{"msg":"x",{many}}}'.encode())
    assert all(len(value) <= FIELD_LENGTH_MAX for value in line.fields.values())
    line = clean(LogLine(NOW, "job/1", "LOUD", "x", {f"f{n}": "v" for n in range(500)}))
    assert len(line.fields) == FIELDS_MAX
    assert line.level == LogSeverity.INFO


def test_cleaning_a_clean_line_changes_nothing() -> None:
    line = parsed(b'{"message":"x","event":"started","level":"warn","at_line":7}')
    assert line.fields == {"event": "started", "at_line": "7"}
    assert clean(line) == line
    assert clean(clean(LogLine(NOW, "job/1", "warn", "a\x07", {"k\x07": "v" * 5_000}))) == clean(
        LogLine(NOW, "job/1", "warn", "a\x07", {"k\x07": "v" * 5_000})
    )


def test_a_secret_that_json_has_to_escape_is_masked_too() -> None:
    line = parsed(b'{"msg":"with p\\"w1\\u00fc","deep":{"key":"p\\"w1\\u00fc"}}', secrets=['p"w1\u00fc'])
    assert "w1" not in line.text and "w1" not in str(line.fields)


def test_secrets_are_masked_also_inside_structured_lines() -> None:
    assert "hunter22" not in repr(parsed(b'{"msg":"pw hunter22","pw":"hunter22"}', secrets=("hunter22",)))
    assert "hunter22" not in parsed(b"password=hunter22", secrets=("hunter22",)).text


def test_a_word_far_into_the_text_is_no_level() -> None:
    assert level_in_text("x" * 80 + " ERROR") == LogSeverity.INFO
