"""The chain of the audit trail, and the folding of floods."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from homeport.core.audit.chain import BEGINNING, Ends, Mark, append, first_fault, link
from homeport.core.audit.throttle import TEXT_MAX, AuditThrottle, cleaned
from homeport.core.model.access import AuditEntry, AuditResult, NewAudit
from homeport.errors import InvalidInput

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def said(number: int = 1, **changes: object) -> NewAudit:
    entry = NewAudit(
        at=NOON + timedelta(seconds=number),
        actor="ada",
        role="admin",
        address="192.0.2.7",
        action="deployments.create",
        target=f"deployment-{number}",
        result=AuditResult.DONE,
        detail={"status": 202, "commit": "c0ffee"},
    )
    return replace(entry, **changes)  # type: ignore[arg-type]


def refused(seconds: float = 0, **changes: object) -> NewAudit:
    at = NOON + timedelta(seconds=seconds)
    detail = {"status": 401, "code": "unauthenticated"}
    return replace(said(), at=at, actor="anonymous", result=AuditResult.REFUSED, detail=detail, **changes)  # type: ignore[arg-type]


def chain(length: int) -> tuple[AuditEntry, ...]:
    return append(None, [said(number) for number in range(1, length + 1)])


def ends_of(entries: tuple[AuditEntry, ...]) -> Ends:
    first = entries[0]
    return Ends(Mark(first.position - 1, first.previous), Mark.of(entries[-1]))


def test_the_first_entry_follows_the_beginning() -> None:
    (first,) = chain(1)
    assert (first.position, first.previous) == (1, BEGINNING)


def test_a_chain_that_was_written_holds() -> None:
    entries = chain(5)
    assert first_fault(entries, ends_of(entries)) is None


def test_appending_later_continues_the_chain() -> None:
    begun = chain(2)
    entries = begun + append(begun[-1], [said(3), said(4)])
    assert [entry.position for entry in entries] == [1, 2, 3, 4]
    assert first_fault(entries, ends_of(entries)) is None


def test_a_trail_without_its_oldest_entries_still_holds() -> None:
    entries = chain(6)[3:]
    assert first_fault(entries) is None
    assert first_fault(entries, ends_of(entries)) is None


def test_a_changed_entry_is_named() -> None:
    entries = list(chain(4))
    entries[2] = replace(entries[2], entry=replace(entries[2].entry, actor="eve"))
    assert first_fault(entries) == "entry 3 was changed after it was written"


def test_a_missing_entry_is_named() -> None:
    entries = chain(5)
    assert first_fault(entries[:1] + entries[3:]) == "entries 2 to 3 are missing"
    assert first_fault(entries[:2] + entries[3:]) == "entry 3 is missing"


def test_entries_missing_at_the_ends_are_named_when_the_ends_are_known() -> None:
    entries = chain(5)
    assert first_fault(entries[:3], ends_of(entries)) == "entries 4 to 5 are missing at the end"
    assert first_fault(entries[1:], ends_of(entries)) == "entry 1 is missing"
    assert first_fault((), ends_of(entries)) == "entries 1 to 5 are missing at the end"


def test_an_entry_with_a_hash_made_again_does_not_carry_the_next() -> None:
    entries = list(chain(4))
    forged = replace(entries[1].entry, actor="eve")
    entries[1] = AuditEntry(2, forged, entries[1].previous, link(entries[1].previous, 2, forged))
    assert first_fault(entries) == "entry 3 does not follow the entry before it"


def test_a_whole_chain_made_again_does_not_reach_a_mark_that_was_noted() -> None:
    entries = chain(3)
    forged = append(None, [said(number, actor="eve") for number in range(1, 4)])
    assert first_fault(forged) is None
    assert first_fault(forged, ends_of(entries)) == "entry 3 is not the one that was written there"


def test_a_repeated_entry_stands_in_the_wrong_place() -> None:
    first, second = chain(2)
    assert first_fault([first, second, second]) == "entry 2 stands where entry 3 belongs"


def test_the_same_moment_in_another_zone_has_the_same_hash() -> None:
    elsewhere = NOON.astimezone(timezone(timedelta(hours=5)))
    assert link(BEGINNING, 1, said(at=NOON)) == link(BEGINNING, 1, said(at=elsewhere))


def test_a_mark_can_be_written_down_and_read_again() -> None:
    mark = Mark.of(chain(3)[-1])
    assert Mark.parse(f" {mark}\n") == mark


@pytest.mark.parametrize("text", ["", "3", "3:abc", "x:" + "0" * 64, "3:" + "0" * 65, "٣:" + "0" * 64])
def test_what_is_not_a_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not a checkpoint"):
        Mark.parse(text)


def test_what_strangers_call_themselves_is_cut_and_cannot_break_a_line() -> None:
    entry = cleaned(said(actor="a\nb\x00c\ud800", target="x" * 5000))
    assert entry.actor == "a\ufffdb\ufffdc\ufffd"
    assert len(entry.target) == TEXT_MAX


def test_a_token_in_a_path_does_not_reach_the_trail() -> None:
    entry = cleaned(said(target="/api/v1/join/hpj_abcdef0123_SeCrEt0123456789"))
    assert entry.target == "/api/v1/join/[a token]"


def test_a_change_is_never_folded() -> None:
    folds = AuditThrottle()
    assert all(folds.admit(said(1)) for _ in range(3))
    assert folds.due(NOON + timedelta(days=1)) == ()


def test_a_stranger_who_asks_again_and_again_to_be_let_in_is_counted() -> None:
    folds = AuditThrottle()
    waiting = said(actor="stranger", action="identities.enrol", detail={"pending": True})
    assert folds.admit(waiting)
    assert not folds.admit(waiting)


def test_repeats_of_a_refusal_become_one_entry_with_a_count() -> None:
    folds = AuditThrottle(window_seconds=60)
    assert folds.admit(refused(0))
    assert not any(folds.admit(refused(second)) for second in range(1, 50))
    assert folds.due(NOON + timedelta(seconds=59)) == ()
    (folded,) = folds.due(NOON + timedelta(seconds=60))
    assert folded.detail == {"count": 49, "since": NOON.isoformat(), "code": "unauthenticated"}
    assert folded.at == NOON + timedelta(seconds=49)
    assert folds.admit(refused(61)), "a new window begins with an entry of its own"


def test_a_single_refusal_leaves_nothing_to_count() -> None:
    folds = AuditThrottle()
    assert folds.admit(refused())
    assert folds.due(NOON + timedelta(hours=1)) == ()


def test_refusals_of_another_kind_are_told_apart() -> None:
    folds = AuditThrottle()
    assert folds.admit(refused())
    assert folds.admit(refused(address="192.0.2.8"))
    assert folds.admit(refused(action="nodes.remove"))


def test_a_scan_over_many_targets_is_one_kind() -> None:
    folds = AuditThrottle()
    assert folds.admit(refused(0, target="a"))
    assert not folds.admit(refused(1, target="b"))
    (folded,) = folds.due(NOON + timedelta(hours=1))
    assert folded.target == "several"


def test_refusals_from_very_many_addresses_are_bounded_too() -> None:
    folds = AuditThrottle(kinds_max=10)
    admitted = [refused(address=f"10.0.{n // 250}.{n % 250}") for n in range(1000)]
    written = [entry for entry in admitted if folds.admit(entry)]
    assert len(written) == 11
    (folded,) = folds.due(NOON + timedelta(hours=1))
    assert (folded.address, folded.detail["count"]) == ("several", 989)


def test_a_failure_of_ours_is_never_folded() -> None:
    folds = AuditThrottle()
    failed = said(result=AuditResult.FAILED, detail={"status": 500})
    assert folds.admit(failed)
    assert folds.admit(failed)
