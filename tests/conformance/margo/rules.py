"""Rules of our own where Margo is silent, each with the tests that show it. `docs/lifecycle.md` lists them."""

# ruff: noqa: E501 - a table

from dataclasses import dataclass, replace
from typing import Final

CLIENT: Final = "tests/integration/margo/test_client.py"
WFM: Final = "tests/integration/margo/test_wfm.py"
EXACT: Final = "tests/conformance/margo/test_exactness.py"
EXCHANGE: Final = "tests/conformance/margo/test_wfm.py"
ATTACKS: Final = "tests/integration/margo/test_attacks.py"
HERD: Final = "tests/faults/test_herd.py"
PARTS: Final = "tests/unit/core/margo/test_client_parts.py"
REPLICAS: Final = "tests/integration/margo/test_replicas.py"


@dataclass(frozen=True, slots=True)
class Rule:
    question: str
    answer: str
    tests: tuple[str, ...]

    def and_(self, file: str, *names: str) -> "Rule":
        return replace(self, tests=(*self.tests, *(f"{file}::test_{name}" for name in names)))


def rule(question: str, answer: str, file: str, *names: str) -> Rule:
    return Rule(question, answer, tuple(f"{file}::test_{name}" for name in names))


# fmt: off
RULES: Final[tuple[Rule, ...]] = (
    rule("When is a status sent?",
         "For each change of state, in order; what happened while the fleet manager could not be reached is sent when it is back.",
         CLIENT, "a_deployment_is_installed_updated_and_removed_with_a_report_of_each_step"),
    rule("What of a report that is refused?",
         "It is logged and left out; others are not delayed by it.",
         CLIENT, "a_report_that_is_refused_delays_no_other"),
    rule("What of reports while the client is not accepted?",
         "Where its polls are refused as well (401, 403, 404), they wait, and are sent once, in order, when it is accepted again. Where polls are answered, the report alone was refused.",
         CLIENT, "what_happens_while_the_client_is_not_accepted_is_reported_when_it_is", "a_report_that_is_refused_although_polls_are_answered_is_not_repeated"),
    rule("What is adopted?",
         "A manifest counts as adopted when the site has taken over all of it; its version and ETag are stored then, and reports name it. A"
         " deployment that fails for good changes nothing of that: it is reported as `failed`, and tried again by the rules below.",
         CLIENT, "version_and_etag_survive_a_restart_and_a_replayed_manifest_is_rejected", "a_device_that_does_not_meet_the_rules_reports_the_deployment_as_failed"),
    rule("What of one bad deployment?",
         "It is reported as `failed` and left as it is; the rest of the manifest is adopted. A report that could not be sent is sent later, also after a restart.",
         CLIENT, "what_is_for_other_devices_is_answered_with_the_reserved_codes", "what_cannot_be_taken_is_reported_when_the_manager_is_back"),
    rule("What of the same manifest once more?",
         "A fleet manager without conditions or ETags, or behind a proxy that changes them, sends it at each poll: the same bytes are neither news nor an attack.",
         CLIENT, "a_manager_that_sends_the_same_manifest_each_time_is_followed"),
    rule("What drops a whole update?",
         "A wrong digest, a missing artifact, an older version, another media type, an answer that is too long or cut short, a key that comes twice. It is shown, logged as a security"
         " event, and what runs stays.",
         CLIENT, "a_faulty_update_is_dropped_as_a_whole_and_what_runs_stays", "a_wrong_bundle_is_dropped_and_a_wrong_size_is_not"),
    rule("What of a fleet manager that begins again at an older version?",
         "Its manifests are refused, as replayed ones are, and what runs stays, until an operator says that it lost its state, or that it is another one now: `--wfm-forget VERSION` of the site, with"
         " the version that is adopted. That holds until the next manifest is adopted, also where the"
         " option stays and that version comes again; it can be used once more after a start without it.",
         CLIENT, "a_fleet_manager_that_lost_its_state_is_followed_again_when_an_operator_says_so", "a_version_is_forgotten_once_also_where_the_option_stays"),
    rule("How often is it asked?",
         "Every 15 s, give or take a tenth (`--wfm-poll`), within `--wfm-hours`, never in `--wfm-downtime`. Failures are repeated ever slower, up to a minute,"
         " and never before `Retry-After`, of which a week at most is believed. What says `retryable: false` is not repeated, `fixed` is not repeated ever slower.",
         CLIENT, "outside_its_hours_and_in_a_downtime_nobody_is_called", "a_slow_fleet_manager_and_retry_after_delay_nobody", "the_hints_of_a_problem_decide_about_the_next_attempt"),
    rule("How long may a fetch take?",
         "A minute; a bundle twenty, as long as something arrives within each minute.",
         CLIENT, "a_large_bundle_over_a_slow_line_takes_its_time"),
    rule("When are capabilities reported?",
         "As the first call after each start, and whenever they have changed. A new site waits half an interval, 10 s at most, for its first node: without one it would be shown as a gateway that hosts nothing.",
         CLIENT, "capabilities_are_the_first_call_after_each_start", "what_changes_on_the_device_is_reported_again", "a_site_shows_itself_as_one_device_and_no_children"),
    rule("What of capabilities that are refused?",
         "The first report has to be taken before anything else is asked. Where a later one is refused, the fleet manager is followed all the same, with what it knows.",
         CLIENT, "capabilities_that_are_refused_later_stop_nothing"),
    rule("How long can an artifact be fetched?",
         "While one of the client's last ten manifests lists it.",
         WFM, "an_artifact_can_be_fetched_while_one_of_the_last_ten_manifests_lists_it"),
    rule("How do versions grow?",
         "From 1, and then with the clock, in milliseconds, so that none is ahead of it: a central that is rebuilt from Git, and every replica, continues above what was ever served.",
         WFM, "versions_go_on_above_all_served_ones_when_central_is_rebuilt_from_git", "a_restart_serves_the_same_bytes"),
    rule("What if there are several centrals?",
         "They serve the same bytes, and one sequence of versions.",
         REPLICAS, "both_replicas_serve_the_same_manifest_and_its_version_only_grows"),
    rule("What of a status that names an older manifest than the last one?",
         "It is answered with 200, changes nothing, and is in the audit trail.",
         ATTACKS, "a_status_that_is_replayed_changes_nothing"),
    rule("Of which device may a status be?",
         "Of the client itself, of a device that it has reported, also of one that is gone by now, and of any where it has reported none; another is refused (422). Without `deviceId` it is of the client."
         " Components are named once each; which names they have, and whether all are there, is not judged: some clients send none.",
         EXCHANGE, "a_status_is_of_a_device_that_its_client_has_reported", "status"),
    rule("What of a component without a timeout?",
         "A manifest names one only where the app does: the device's own holds then. A node of ours waits five minutes.",
         EXCHANGE, "deployment_files").and_(EXACT, "a_deployment_carries_constraints_and_extensions_to_where_they_belong"),
    rule("What of a gateway that is removed?",
         "Its child devices go with it, and what is deployed to them is not listed until the device is reported again. Nothing is removed from Git.",
         EXCHANGE, "capabilities", "what_is_for_a_removed_gateway_is_not_listed_until_its_device_is_back"),
    rule("What of a client that sends everything at once?",
         "32 of its reports may be under way; more are told to wait (429). Others do not wait for it.",
         EXACT, "a_client_that_floods_is_told_to_wait_and_others_are_not"),
    rule("What if something that is stored is damaged?",
         "Bytes that do not match their digest are not there, and come back with the client's next manifest; a record that cannot be read fails for its own client (503). A site goes on from its last commit, and takes nothing older.",
         EXACT, "damaged_records_harm_their_own_client_alone_and_wrong_bytes_are_never_served").and_(CLIENT, "a_damaged_memory_is_made_of_the_commit_and_nothing_older_is_taken"),
    rule("What of an id that is no UUID?",
         "An id is used as it was announced. One that is no UUID fails alone, because Margo demands one of the file; the rest of the manifest is adopted.",
         CLIENT, "an_id_is_used_as_it_was_announced_and_one_that_is_no_uuid_fails_alone"),
    rule("What of a client that is removed and comes back?",
         "Its versions go on where they were.",
         WFM, "a_client_that_was_removed_and_comes_back_finds_its_versions_go_on"),
    rule("What if a whole fleet comes back at once?",
         "Its connections wait in the system and are accepted in turn, and each is answered soon after that; polls on open connections are answered in between. Who has waited for half a minute is closed, and comes again.",
         HERD, "a_whole_fleet_that_reconnects_within_a_second_is_answered").and_("tests/integration/serving/test_connections.py", "who_has_waited_for_too_long_is_left_out_before_the_handshake"),
    rule("When does one come again that was told to wait?",
         "After `Retry-After`, and up to half as long again: others were told the same. The Margo port of central names 5 to 10 s, not the same for all.",
         PARTS, "the_hints_of_a_problem_decide_whether_and_when_it_is_tried_again"),
)
# fmt: on
