"""Real faults, as in reference lists F1 to F13: kills, cuts, loss, full disks, bad bytes, wrong clocks.

`SHOWN_BY` names the tests of each fault of the list F1 to F25, here or elsewhere; `tests/unit/test_faults.py` checks
that they are there.
"""

from typing import Final

# fmt: off
SHOWN_BY: Final = {
    "F1": ("faults/test_crashes.py::test_a_kill_at_every_step_loses_nothing_and_doubles_nothing",
           "faults/test_crashes.py::test_the_walk_leaves_out_no_point",
           "faults/test_replicas.py::"
           "test_the_holder_of_every_lease_is_killed_at_each_step_and_nothing_is_lost_or_doubled"),
    "F2": ("faults/test_power.py::test_after_a_power_cut_without_uplink_the_last_good_workloads_run_again",
           "faults/test_power.py::test_a_home_that_is_a_service_has_its_apps_and_their_data_again_after_a_power_cut"),
    "F3": ("faults/test_partitions.py::test_a_site_that_was_cut_off_from_central_tells_everything_once",
           "faults/test_a_day_offline.py::test_a_day_of_churn_fits_and_arrives_in_order_once"),
    "F4": ("faults/test_partitions.py::test_a_flapping_link_ends_with_everything_where_it_should_be",),
    "F5": ("faults/test_lines.py::test_an_update_arrives_through_a_line_that_loses_packets",
           "faults/test_lines.py::test_a_node_that_hears_and_is_not_heard_goes_on_and_is_heard_again",
           "faults/test_lines.py::test_a_far_and_narrow_line_is_slow_and_nothing_else"),
    "F6": ("faults/test_fetching.py::test_an_archive_whose_download_breaks_again_and_again_costs_its_size",
           "faults/test_fetching.py::test_an_image_whose_download_breaks_is_still_installed"),
    "F7": ("faults/test_disks.py::test_a_full_disk_is_said_and_touches_nothing",
           "faults/test_disks.py::test_a_full_disk_under_a_site_and_under_the_logs_ends_no_role"),
    "F8": ("faults/test_corruption.py::test_a_damaged_journal_is_moved_away_and_written_anew",
           "faults/test_corruption.py::test_a_damaged_certificate_is_named",
           "faults/test_corruption.py::test_a_damaged_database_of_a_site_is_written_anew_from_git_and_its_nodes",
           "faults/test_corruption.py::test_what_a_registry_sends_wrong_is_not_installed"),
    "F9": ("faults/test_git.py::test_without_git_everything_stays_and_a_deploy_is_refused",
           "faults/test_git.py::test_rewritten_history_is_not_followed_until_it_is_put_back",
           "faults/test_git.py::test_a_folder_that_was_deleted_deletes_nothing",
           "faults/test_git.py::test_a_broken_file_keeps_its_own_deployment_and_holds_up_nobody",
           "faults/test_git.py::test_thousands_of_foreign_files_do_not_matter"),
    "F10": ("faults/test_bad_releases.py::test_a_release_without_its_image_touches_nothing",
            "faults/test_bad_releases.py::test_a_release_that_does_not_work_is_rolled_back",
            "faults/test_bad_releases.py::test_a_program_that_does_not_start_is_rolled_back"),
    "F11": ("integration/central/test_many_sites.py::test_a_hundred_sites_with_ten_bad_and_ten_offline",),
    "F12": ("faults/test_churn.py::test_a_new_revision_every_second_ends_at_the_last",
            "faults/test_churn.py::test_a_deletion_in_the_middle_of_an_update_leaves_nothing"),
    "F13": ("faults/test_clocks.py::test_a_clock_that_jumps_expires_nobody",),
    "F14": ("integration/identity/test_meeting.py::test_a_wrong_certificate_does_not_get_in",
            "integration/enrolment/test_joining.py::"
            "test_a_removed_node_loses_its_stream_at_once_and_does_not_come_back",
            "integration/enrolment/test_joining.py::test_a_node_joins_and_is_renewed_with_central_gone",
            "integration/enrolment/test_joining.py::"
            "test_a_certificate_that_ended_is_renewed_by_the_same_key_and_no_other",
            "e2e/test_namespaces.py::test_rotation_and_a_long_cut_restart_nothing"),
    "F15": ("faults/test_herd.py::test_a_whole_fleet_that_reconnects_within_a_second_is_answered",),
    "F16": ("unit/serving/test_event_stream.py::test_a_client_that_does_not_read_is_disconnected",
            "integration/central/test_logs.py::"
            "test_slow_followers_cost_a_thousand_others_nothing_and_no_memory_to_speak_of",
            "unit/serving/test_tail.py::test_a_thousand_followers_read_the_store_once"),
    "F17": ("conformance/engine/test_engines.py::test_each_way_to_break_has_its_code",
            "unit/core/inference/engines/test_provisioning.py::test_running_out_of_one_memory_is_told_from_the_other",
            "integration/inference/test_plane.py::test_a_stalled_engine_is_a_typed_timeout",
            "integration/inference/test_plane.py::"
            "test_a_replica_that_fails_before_the_first_token_is_replaced_by_another_once",
            "integration/inference/test_plane.py::"
            "test_an_engine_that_dies_in_the_middle_ends_with_an_error_and_nothing_after_it"),
    "F18": ("integration/inference/test_plane.py::test_a_flood_is_bounded_typed_and_fair",
            "integration/inference/test_plane.py::"
            "test_ten_thousand_tasks_of_five_keys_are_answered_in_turns_and_leave_nothing_in_memory"),
    "F19": ("integration/inference/test_disconnects.py::test_while_it_waits_in_the_queue",
            "integration/inference/test_disconnects.py::test_before_the_first_token",
            "integration/inference/test_disconnects.py::test_in_the_middle_of_a_stream"),
    "F20": ("integration/inference/test_plane.py::"
            "test_a_reload_under_load_fails_no_task_and_a_bad_one_changes_nothing",
            "integration/inference/test_plane.py::test_a_drained_pool_hands_its_waiting_tasks_to_another"),
    "F21": ("integration/versions/test_previous_release.py::"
            "test_an_old_site_between_a_new_central_and_a_new_node_then_upgraded_in_place",
            "integration/versions/test_previous_release.py::test_a_new_site_between_an_old_central_and_an_old_node",
            "integration/versions/test_upgrade.py::test_a_fleet_of_the_previous_release_goes_on_where_it_stopped"),
    "F22": ("integration/site/test_restored.py::test_an_older_copy_of_a_sites_database_is_true_again",
            "integration/site/test_central_forgets.py::test_an_older_copy_of_centrals_database_catches_up"),
    "F23": ("integration/central/test_pins.py::test_content_that_is_not_the_revision_is_refused",
            "integration/site/test_link_bounds.py::test_a_message_that_is_too_large_is_refused_by_code",
            "integration/margo/test_attacks.py::test_slow_huge_and_broken_bodies_end_alone"),
    "F25": ("property/test_convergence.py::"
            "test_in_the_end_what_is_wanted_is_where_it_should_be_or_it_is_said_why_not",
            "simulation/test_harness.py::test_a_bug_put_in_on_purpose_is_found_and_can_be_seen_again"),
}
# fmt: on

MEASURED: Final = {"F24": "scripts/bench churn"}
"""Not in every run: a soak takes too long."""
