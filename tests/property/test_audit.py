"""Whatever single thing somebody does to the lines of an audit trail, it is found."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import assume, given
from hypothesis import strategies as st

from homeport.core.audit.chain import Ends, Mark, append, first_fault, link
from homeport.core.audit.throttle import AuditThrottle
from homeport.core.model.access import AuditEntry, AuditResult, NewAudit

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
MOMENTS = st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC))
DETAILS = st.dictionaries(TEXT, TEXT | st.integers(-(2**53), 2**53) | st.booleans(), max_size=3)
ENTRIES = st.builds(
    NewAudit,
    at=MOMENTS,
    actor=TEXT,
    role=TEXT,
    address=TEXT,
    action=TEXT,
    target=TEXT,
    result=st.sampled_from(AuditResult),
    detail=DETAILS,
)
CHAINS = st.lists(ENTRIES, min_size=1, max_size=8).map(lambda entries: list(append(None, entries)))


def ends_of(chain: list[AuditEntry]) -> Ends:
    return Ends(Mark(chain[0].position - 1, chain[0].previous), Mark.of(chain[-1]))


@given(chain=CHAINS, forgotten=st.integers(0, 7))
def test_a_chain_holds_whatever_it_says_and_however_much_was_forgotten(
    chain: list[AuditEntry], forgotten: int
) -> None:
    rest = chain[min(forgotten, len(chain) - 1) :]
    assert first_fault(rest, ends_of(rest)) is None


@given(chain=CHAINS, other=ENTRIES, data=st.data())
def test_a_changed_entry_is_found(chain: list[AuditEntry], other: NewAudit, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(chain) - 1))
    field = data.draw(st.sampled_from(sorted(NewAudit.__dataclass_fields__)))
    changed = replace(chain[place].entry, **{field: getattr(other, field)})
    assume(changed != chain[place].entry)
    forged = [*chain]
    forged[place] = replace(chain[place], entry=changed)
    assert first_fault(forged, ends_of(chain)) is not None


@given(chain=CHAINS, other=ENTRIES, data=st.data())
def test_a_changed_entry_with_its_hash_made_again_is_found(
    chain: list[AuditEntry], other: NewAudit, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(chain) - 1))
    was = chain[place]
    assume(other != was.entry)
    forged = [*chain]
    forged[place] = AuditEntry(was.position, other, was.previous, link(was.previous, was.position, other))
    assert first_fault(forged, ends_of(chain)) is not None


@given(chain=CHAINS, data=st.data())
def test_a_removed_entry_is_found(chain: list[AuditEntry], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(chain) - 1))
    assert first_fault(chain[:place] + chain[place + 1 :], ends_of(chain)) is not None


@given(chain=CHAINS, other=ENTRIES, data=st.data())
def test_an_inserted_entry_is_found(chain: list[AuditEntry], other: NewAudit, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(chain) - 1))
    previous = chain[place - 1].hash if place else chain[0].previous
    position = data.draw(st.sampled_from([chain[place].position, chain[place].position - 1]))
    extra = AuditEntry(position, other, previous, link(previous, position, other))
    assume(extra != chain[place])
    assert first_fault([*chain[:place], extra, *chain[place:]], ends_of(chain)) is not None


@given(chain=CHAINS, data=st.data())
def test_swapped_entries_are_found(chain: list[AuditEntry], data: st.DataObject) -> None:
    assume(len(chain) > 1)
    one, two = data.draw(st.lists(st.integers(0, len(chain) - 1), min_size=2, max_size=2, unique=True))
    forged = [*chain]
    forged[one], forged[two] = forged[two], forged[one]
    assert first_fault(forged, ends_of(chain)) is not None


@given(
    refusals=st.lists(
        st.tuples(st.integers(0, 30), st.sampled_from("abcdef"), st.sampled_from(AuditResult)), max_size=60
    ),
    kinds_max=st.integers(1, 4),
)
def test_folding_loses_no_attempt_and_never_a_change(
    refusals: list[tuple[int, str, AuditResult]], kinds_max: int
) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    folds, written, now = AuditThrottle(window_seconds=20, kinds_max=kinds_max), list[NewAudit](), start
    for seconds, address, result in refusals:
        now += timedelta(seconds=seconds)
        entry = NewAudit(now, "x", "", address, "nodes.remove", "n", result)
        if folds.admit(entry):
            written.append(entry)
        written += folds.due(now)
    written += folds.due(now, all_of_them=True)
    assert sum(entry.detail.get("count", 1) for entry in written) == len(refusals)
    done = [entry for entry in written if entry.result is AuditResult.DONE]
    assert len(done) == sum(result is AuditResult.DONE for _, _, result in refusals)
