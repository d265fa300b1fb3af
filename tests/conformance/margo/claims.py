"""Which test shows which rule of Margo's checklist, and why a rule has none. `docs/margo-conformance.md` is made of
it."""

# ruff: noqa: E501 - a table

from dataclasses import dataclass
from typing import Final

WFM: Final = "tests/conformance/margo/test_wfm.py"
EXACT: Final = "tests/conformance/margo/test_exactness.py"
CERTIFICATES: Final = "tests/conformance/margo/test_certificates.py"
CONTRACT: Final = "tests/conformance/margo/test_contract.py"
STORY: Final = "tests/integration/margo/test_wfm.py"
IMPORTS: Final = "tests/integration/margo/test_packages.py"
CLIENT: Final = "tests/integration/margo/test_client.py"
BOTH: Final = "tests/integration/margo/test_both_sources.py"
CORE: Final = "tests/unit/core/margo/test_manifest.py"
STATES: Final = "tests/unit/core/margo/test_status.py"
PARTS: Final = "tests/unit/core/margo/test_client_parts.py"
MEETING: Final = "tests/integration/identity/test_meeting.py"
RULES: Final = "tests/unit/core/identity/test_rules.py"
SPIFFE: Final = "tests/unit/core/identity/test_spiffe.py"
BUNDLE: Final = "tests/conformance/identity/test_bundle.py"
JOINING: Final = "tests/integration/enrolment/test_joining.py"
ROTATION: Final = "tests/integration/identity/test_rotation.py"
RENEWAL: Final = "tests/integration/identity/test_renewal.py"
DESCRIPTION: Final = "tests/unit/catalog/test_description.py"
DEPLOYMENT: Final = "tests/unit/catalog/test_deployment.py"
PACKAGES: Final = "tests/unit/catalog/test_packages.py"
PARAMETERS: Final = "tests/unit/core/test_parameters.py"
ELIGIBLE: Final = "tests/unit/core/placement/test_eligibility.py"
ARCHIVE: Final = "tests/unit/core/test_archive.py"
REGISTRY: Final = "tests/conformance/registry/test_oci.py"
COLLECTOR: Final = "tests/unit/test_collector_configuration.py"
ORDERS: Final = "tests/conformance/runtime/test_orders.py"
ATTACKS: Final = "tests/integration/margo/test_attacks.py"
KILLED: Final = "tests/integration/margo/test_killed_client.py"
SHIPPED: Final = "tests/integration/adapters/test_shipped_collector.py"
OUTSIDE: Final = "tests/integration/identity/test_outside.py"
DEVICES: Final = "tests/integration/margo/test_devices_command.py"
BAD_INPUT: Final = "tests/integration/central/test_bad_input.py"
COMPOSE: Final = "tests/conformance/runtime/test_compose.py"
UNPACKING: Final = "tests/unit/adapters/registry/test_archive.py"
VARIABLES: Final = "tests/unit/core/node/test_telemetry_variables.py"
OPERATORS: Final = "The collector itself is the operator's; its configuration is shipped (`deploy/otel-collector.yaml`, `deploy/otel-collector-kubernetes.yaml`) and checked against the documented shape, not with the program."
OUT_OF_BAND: Final = "A Margo client gets its bundle as a file, out of band, which the contract treats alike; the tests show how a site fetches central's."


@dataclass(frozen=True, slots=True)
class Claim:
    """`why` is given where there is no test, or where the test shows less than the rule says."""

    ids: str
    tests: tuple[str, ...] = ()
    why: str = ""


def shown(ids: str, file: str, *names: str, why: str = "") -> Claim:
    return Claim(ids, tuple(f"{file}::test_{name}" for name in names), why)


def both(ids: str, *tests: tuple[str, str], why: str = "") -> Claim:
    return Claim(ids, tuple(f"{file}::test_{name}" for file, name in tests), why)


def open_(ids: str, why: str) -> Claim:
    return Claim(ids, (), why)


# fmt: off
CLAIMS: Final[tuple[Claim, ...]] = (
    shown("TLS-01 IDN-17", EXACT, "the_port_speaks_tls_1_3_alone_and_shows_the_identity_of_its_fleet_manager"),
    both("TLS-02 TLS-03", (EXACT, "the_port_speaks_tls_1_3_alone_and_shows_the_identity_of_its_fleet_manager"), (MEETING, "tls_1_2_is_refused_on_both_sides"), why="TLS 1.2 is never offered, so it needs no rules."),
    shown("TLS-04", EXACT, "an_http_1_1_connection_is_plain_and_kept"),
    shown("TLS-05", CERTIFICATES, "the_port_of_central_is_443"),
    both("TLS-06 TLS-07 TLS-08 IDN-02 IDN-04 IDN-05 IDN-06 IDN-07 IDN-08", (CERTIFICATES, "each_wrong_certificate_is_refused_and_each_right_one_gets_its_manifest"), (CLIENT, "a_server_with_another_identity_gets_nothing"), (MEETING, "a_wrong_certificate_does_not_get_in")),
    both("TLS-09", (EXACT, "the_port_speaks_tls_1_3_alone_and_shows_the_identity_of_its_fleet_manager"), (MEETING, "a_session_is_never_resumed")),
    both("TLS-10", (EXACT, "a_connection_ends_when_it_is_too_old"), (EXACT, "a_certificate_that_is_no_longer_trusted_is_refused_on_an_open_connection"), (EXACT, "a_request_under_way_on_a_connection_that_is_too_old_is_answered"), (MEETING, "a_peer_of_an_open_connection_is_refused_once_its_time_is_over")),
    shown("IDN-01 IDN-11 IDN-12 IDN-13 IDN-15", WFM, "identity_and_policy"),
    both("IDN-03", (CERTIFICATES, "each_wrong_certificate_is_refused_and_each_right_one_gets_its_manifest"), (ROTATION, "nobody_is_refused_while_the_authority_changes_its_key")),
    shown("TRB-07", ROTATION, "whoever_slept_through_the_rotation_is_refused_also_on_open_connections"),
    both("IDN-09 IDN-10", (SPIFFE, "a_client_is_known_by_the_exact_form_alone"), (CERTIFICATES, "each_wrong_certificate_is_refused_and_each_right_one_gets_its_manifest")),
    both("DSM-16", (WFM, "what_belongs_to_another_client_does_not_exist"), (EXACT, "a_bundle_holds_exactly_the_files_of_its_manifest")),
    shown("IDN-14 IDN-16 SCP-01 SCP-02", WFM, "what_belongs_to_another_client_does_not_exist", why="Client-Cert headers are never read; TLS ends in central itself."),
    both("IDN-18 IDN-19 IDN-20", (CLIENT, "a_server_with_another_identity_gets_nothing"), (SPIFFE, "a_client_takes_only_its_own_wfm_for_its_server")),
    shown("IDN-21", SPIFFE, "a_client_takes_only_its_own_wfm_for_its_server"),
    both("IDN-22", (CLIENT, "a_renewed_certificate_is_shown_on_new_connections"), (CERTIFICATES, "each_wrong_certificate_is_refused_and_each_right_one_gets_its_manifest")),
    shown("TRB-01 TRB-02", RENEWAL, "a_bundle_is_fetched_over_https_alone_and_a_failed_or_wrong_one_changes_nothing", "another_server_is_left_before_the_first_byte", "a_server_is_known_by_its_pin_before_there_is_a_bundle", why=OUT_OF_BAND),
    shown("TRB-03 TRB-04", BUNDLE, "unknown_fields_and_keys_of_other_use_are_passed_over"),
    both("TRB-05", (RENEWAL, "a_bundle_is_fetched_over_https_alone_and_a_failed_or_wrong_one_changes_nothing"), (BUNDLE, "a_bundle_that_names_no_anchor_is_refused"), (OUTSIDE, "wrong_files_leave_what_was_in_use")),
    both("TRB-06", (RENEWAL, "a_bundle_is_fetched_over_https_alone_and_a_failed_or_wrong_one_changes_nothing"), (OUTSIDE, "wrong_files_leave_what_was_in_use")),
    both("TRB-08 TRB-09", (RENEWAL, "a_bundle_is_fetched_over_https_alone_and_a_failed_or_wrong_one_changes_nothing"), (JOINING, "the_authority_is_rotated_while_everybody_works"), why=OUT_OF_BAND),
    shown("TRB-10", "tests/integration/identity/test_files.py", "an_identity_of_another_domain_is_not_taken", why="No client of ours reads a discovery document; the domain of its files is compared instead."),
    both("TRB-11 TRB-12", (JOINING, "the_bundle_and_where_it_is_can_be_asked_for_and_cached"), ("tests/integration/central/test_tokens.py", "over_http_there_is_a_trust_bundle_and_nothing_that_leads_margo_clients_to_it"), why="The bundle always exists at central, so there is no 404 of it."),
    shown("SCP-03", PARTS, "a_site_has_one_source_of_desired_state"),
    both("CAP-03 CAP-04", (WFM, "capabilities"), (ATTACKS, "what_the_contract_refuses_changes_nothing_is_recorded_and_concerns_nobody_else"), (EXACT, "numbers_texts_and_nesting_that_nobody_could_store_are_refused")),
    shown("CAP-01 CAP-02 CAP-06 CAP-07 CAP-08 CAP-09 CAP-10 CAP-12 CAP-13", WFM, "capabilities"),
    shown("CAP-11", WFM, "capabilities", "a_type_that_margo_does_not_name_counts_as_custom_where_that_is_wanted"),
    both("CAP-05", (WFM, "capabilities"), (EXACT, "a_deviceid_may_come_with_its_slashes_encoded")),
    shown("CAP-14", CLIENT, "a_deployment_is_installed_updated_and_removed_with_a_report_of_each_step", "capabilities_are_the_first_call_after_each_start"),
    shown("CAP-15", CLIENT, "what_changes_on_the_device_is_reported_again"),
    both("CAP-16 CAP-18 CAP-20", (CLIENT, "a_deployment_is_installed_updated_and_removed_with_a_report_of_each_step"), (PARTS, "a_site_reports_its_nodes_as_one_device"), (PARTS, "a_site_without_nodes_hosts_nothing")),
    shown("CAP-17 CAP-19 STA-10", CLIENT, "a_site_shows_itself_as_one_device_and_no_children", why="A site is an opaque gateway: it reports no child devices. Central takes those of others (CAP-05, CAP-06)."),
    both("CAP-21", (CLIENT, "a_fleet_manager_is_told_of_no_more_than_its_share"), (PARTS, "no_more_is_reported_than_was_handed_over"), why="What is handed over is configured with `--wfm-share` of a site."),
    both("DSM-01 DSM-02 DSM-03 DSM-04 DSM-05 DSM-06", (WFM, "manifest_answers"), (EXACT, "a_manifest_is_asked_for_in_every_way_that_http_allows"), (EXACT, "a_field_in_several_lines_is_one_list")),
    both("DSM-07 DSM-08 DSM-14 DSC-04", (WFM, "manifest_answers"), (EXACT, "a_bundle_holds_exactly_the_files_of_its_manifest")),
    shown("DSM-10 DSM-11 DSM-12 DSM-13", WFM, "manifest_answers"),
    both("ERR-01 ERR-02", (ATTACKS, "what_the_contract_refuses_changes_nothing_is_recorded_and_concerns_nobody_else"), (CONTRACT, "every_answer_to_a_generated_request_is_one_of_the_contract"), (EXACT, "a_method_that_is_not_there_says_which_are"), (EXACT, "what_is_not_http_gets_a_problem_document"), (EXACT, "a_host_is_named_once_and_a_body_is_not_compressed")),
    shown("DSM-09", STORY, "a_restart_serves_the_same_bytes", "versions_go_on_above_all_served_ones_when_central_is_rebuilt_from_git"),
    shown("DSM-15 DSC-01 DSC-02 DSC-03 DSC-05", WFM, "artifacts"),
    both("DSC-06", (WFM, "artifacts"), (CLIENT, "answers_may_be_compressed_and_digests_are_of_what_is_in_them")),
    shown("DSC-07", WFM, "artifacts", why="For bundles: the contract lists no 304 for a single deployment, so it is always sent."),
    both("DSM-17 DSM-18", (CLIENT, "version_and_etag_survive_a_restart_and_a_replayed_manifest_is_rejected"), (KILLED, "version_and_etag_survive_kill_9_and_a_questionable_manifest_removes_nothing")),
    shown("DSM-20", KILLED, "version_and_etag_survive_kill_9_and_a_questionable_manifest_removes_nothing", "a_site_that_dies_while_it_adopts_a_manifest_adopts_it_when_it_is_back"),
    shown("DSM-19 DSM-21 DSC-08 DSC-09", CLIENT, "a_faulty_update_is_dropped_as_a_whole_and_what_runs_stays"),
    shown("DSC-10", CLIENT, "a_wrong_bundle_is_dropped_and_a_wrong_size_is_not"),
    shown("DSC-11", CLIENT, "a_bundle_and_single_files_give_the_same_result"),
    shown("DSC-12", CORE, "digests_and_etags_are_those_of_the_vectors", "what_is_not_a_lowercase_sha256_is_no_digest"),
    shown("DEP-01 DEP-02 DEP-03 DEP-07 DEP-10", WFM, "deployment_files"),
    both("DEP-08 DEP-09", (EXACT, "a_deployment_carries_constraints_and_extensions_to_where_they_belong"), (WFM, "deployment_files")),
    both("DEP-04 DEP-05 DEP-06", (EXACT, "a_deployment_carries_constraints_and_extensions_to_where_they_belong"), (DEPLOYMENT, "constraints_and_extensions_are_copied_unchanged")),
    shown("DEP-11", CLIENT, "a_deployment_is_installed_updated_and_removed_with_a_report_of_each_step"),
    shown("DEP-12", CLIENT, "a_device_that_does_not_meet_the_rules_reports_the_deployment_as_failed"),
    shown("DEP-13", ORDERS, "an_update_pulls_all_then_stops_starts_and_checks_each", "what_is_not_waited_for_succeeds_while_it_is_unhealthy", "the_next_component_begins_when_the_one_before_it_is_done_where_that_is_waited_for"),
    both("CMP-09", (ORDERS, "what_exits_shows_what_it_wrote_last"), (ORDERS, "what_is_unhealthy"), (ORDERS, "an_update_pulls_all_then_stops_starts_and_checks_each"), (COMPOSE, "a_service_that_fails_before_others_start_fails_the_component")),
    shown("DEP-14", ORDERS, "what_is_not_ready_in_time"),
    both("DEP-15", (DEPLOYMENT, "a_file_pushed_by_hand_is_understood"), (DEPLOYMENT, "values_become_text_for_an_environment"), (DEPLOYMENT, "a_pointer_that_is_no_environment_variable_is_refused_for_compose"), ("tests/conformance/runtime/test_runtime.py", "a_parameter_reaches_the_workload_unchanged"), (COMPOSE, "parameters_choose_the_image_but_not_the_tool"), (DEPLOYMENT, "a_chart_is_given_values_as_json_so_that_types_survive"), ("tests/unit/adapters/runtime/test_helm_program.py", "values_are_json_at_their_pointers")),
    shown("DEP-16 STA-12", CLIENT, "what_is_for_other_devices_is_answered_with_the_reserved_codes", why="102 is never used: an opaque gateway shows no children."),
    shown("DEP-17", EXACT, "a_custom_profile_is_carried_through_although_nothing_is_known_of_it", why="Announced for a later version: other names of types than helm, compose and custom are refused, as the current one says."),
    shown("STA-01 STA-02 STA-03 STA-04 STA-05 ERR-05", WFM, "status"),
    shown("STA-06 STA-07", CLIENT, "a_deployment_is_installed_updated_and_removed_with_a_report_of_each_step"),
    shown("STA-09", CLIENT, "a_deployment_is_installed_updated_and_removed_with_a_report_of_each_step", "a_faulty_update_is_dropped_as_a_whole_and_what_runs_stays"),
    shown("STA-08", STATES, "the_overall_state_is_the_most_severe_one"),
    both("STA-11", (CLIENT, "a_device_that_does_not_meet_the_rules_reports_the_deployment_as_failed"), (CLIENT, "what_is_for_other_devices_is_answered_with_the_reserved_codes"), (PARTS, "the_component_that_failed_is_named")),
    both("ERR-03", (STORY, "a_client_whose_file_is_missing_waits_alone"), (EXACT, "a_client_that_floods_is_told_to_wait_and_others_are_not"), (EXACT, "what_comes_while_central_stops_is_told_when_to_come_again")),
    both("ERR-04", (ATTACKS, "what_the_contract_refuses_changes_nothing_is_recorded_and_concerns_nobody_else"), (EXACT, "what_goes_wrong_inside_is_a_500_that_may_be_tried_again"), (STATES, "what_may_work_later_says_when")),
    both("ERR-06", (CLIENT, "a_slow_fleet_manager_and_retry_after_delay_nobody"), (CLIENT, "the_hints_of_a_problem_decide_about_the_next_attempt"), (PARTS, "the_hints_of_a_problem_decide_whether_and_when_it_is_tried_again")),
    shown("ERR-07", PARTS, "an_unknown_problem_type_is_shown_as_it_is"),
    shown("OPS-03", CLIENT, "each_site_polls_at_the_rate_that_it_is_given"),
    both("OPS-01 OPS-02", (CLIENT, "outside_its_hours_and_in_a_downtime_nobody_is_called"), (PARTS, "a_client_calls_within_its_hours_and_not_in_its_downtime"), ("tests/property/test_margo_polling.py", "what_is_waited_for_is_the_next_moment_at_which_it_may_call")),
    shown("OPS-04", CLIENT, "a_long_disconnection_is_survived_with_a_restart_in_it"),
    both("OPS-05", (DESCRIPTION, "the_margo_vectors_are_judged_as_they_say"), (EXACT, "artifacts_are_found_however_a_library_writes_their_path"), (WFM, "identity_and_policy")),
    shown("APP-14", DESCRIPTION, "a_custom_profile_needs_a_label_selector", "the_margo_vectors_are_judged_as_they_say"),
    shown("APP-02 APP-04 APP-05 APP-06 APP-09 APP-10 APP-11 APP-12 APP-15", DESCRIPTION, "each_rule_of_the_checklist_is_judged_by_itself", "the_margo_vectors_are_judged_as_they_say"),
    both("APP-01", (IMPORTS, "a_package_has_exactly_one_description"), (PACKAGES, "the_packages_are_what_margo_describes")),
    both("APP-17", (EXACT, "a_deployment_carries_constraints_and_extensions_to_where_they_belong"), (DESCRIPTION, "the_margo_vectors_are_judged_as_they_say")),
    shown("APP-03", DESCRIPTION, "app_ids_are_judged_as_the_vectors_say"),
    shown("APP-07", DESCRIPTION, "revisions_are_judged_as_the_vectors_say"),
    shown("APP-08", DESCRIPTION, "timeouts_are_judged_as_the_vectors_say"),
    shown("APP-13", DESCRIPTION, "extension_names_are_judged_as_the_vectors_say"),
    both("APP-16", ("tests/unit/catalog/test_examples.py", "a_chart_of_an_older_form_is_not_published"), ("tests/unit/content/test_images_and_charts.py", "what_a_device_that_only_renders_a_chart_does_without_is_said"), ("tests/conformance/runtime/test_helm.py", "kinds_that_need_kubernetes_are_named"), why="Of an app's author: it is said, and hooks and kinds that need Kubernetes are refused by nodes that only render."),
    both("APP-18", (PARAMETERS, "values_are_judged_as_the_vectors_say"), (BAD_INPUT, "a_deploy_that_cannot_be_is_refused_by_field")),
    both("APP-19", (BAD_INPUT, "an_immutable_parameter_cannot_change"), (PARAMETERS, "an_immutable_setting_stays_as_installed")),
    shown("OCI-01 OCI-02 OCI-03 CMP-01 CMP-02", PACKAGES, "the_packages_are_what_margo_describes"),
    shown("OCI-04 OCI-05", PACKAGES, "the_packages_are_what_margo_describes", "each_resource_is_a_layer_of_its_kind_and_format"),
    both("OCI-06", (PACKAGES, "the_packages_are_what_margo_describes"), (IMPORTS, "every_version_of_a_repository_is_added_pinned_by_its_digest")),
    both("CMP-10", (IMPORTS, "what_docker_compose_publish_makes_is_no_component"), (PACKAGES, "the_packages_are_what_margo_describes")),
    shown("OCI-07", IMPORTS, "a_server_with_keys_takes_signed_packages_only", why="Of an app's author: `cosign sign` signs what `homeport apps push` has pushed; central asks for a signature with `--app-key`."),
    both("OCI-08", (IMPORTS, "every_version_of_a_repository_is_added_pinned_by_its_digest"), (REGISTRY, "tags_are_read_page_by_page_as_the_registry_says"), (REGISTRY, "tags_that_never_end_or_are_none_are_refused")),
    shown("OCI-09 CMP-08", REGISTRY, "a_layer_with_another_content_is_refused", "a_manifest_that_does_not_match_its_digest_is_refused"),
    both("CMP-03 CMP-05 CMP-06", (ARCHIVE, "archives_are_judged_as_the_vectors_say"), (ARCHIVE, "an_archive_that_could_do_harm_is_refused_by_name"), (UNPACKING, "nothing_is_written_when_an_entry_is_refused"), ("tests/integration/cli/test_offline.py", "a_component_whose_archive_leaves_its_folder_is_not_pulled")),
    both("CMP-07", (ARCHIVE, "archives_are_judged_as_the_vectors_say"), (UNPACKING, "special_permission_bits_are_never_kept")),
    shown("CMP-04", PACKAGES, "a_component_brings_the_files_it_needs_and_none_of_the_machine"),
    both("MAT-01 MAT-02", (WFM, "matching_is_explained"), (WFM, "a_deployment_is_for_a_device_that_fits_or_is_not_placeable"), (DEVICES, "a_device_is_chosen_planned_kept_and_refused_with_a_reason"), ("tests/unit/core/margo/test_matching.py", "capacity_and_rules_of_a_profile_decide_too_and_each_device_says_what_it_lacks")),
    shown("MAT-03 MAT-09", ELIGIBLE, "constraints_are_judged_as_the_vectors_say"),
    shown("MAT-04", ELIGIBLE, "constraints_are_judged_as_the_vectors_say", "pointers_follow_the_standard", "values_are_compared_exactly"),
    shown("MAT-05 MAT-06 MAT-07", ELIGIBLE, "constraints_are_judged_as_the_vectors_say", "values_are_compared_exactly"),
    shown("MAT-08", ELIGIBLE, "constraints_are_judged_as_the_vectors_say", "one_cpu_has_all_of_it_and_what_is_just_enough_is_enough"),
    both("MAT-10", (CLIENT, "a_device_that_does_not_meet_the_rules_reports_the_deployment_as_failed"), (ELIGIBLE, "constraints_are_judged_as_the_vectors_say")),
    both("OBS-01", (SHIPPED, "traces_and_log_lines_of_homeport_are_received"), (SHIPPED, "a_workload_reaches_it_with_the_variables_that_it_is_given"), why="The collector itself is the operator's; its configuration is shipped, and what is sent to it is received as it says, not with the program."),
    shown("OBS-02", COLLECTOR, "workloads_reach_it_over_otlp_and_it_measures_the_host", "it_measures_containers_or_the_cluster_that_runs_them", why=OPERATORS),
    both("OBS-04 OBS-05", (COLLECTOR, "no_exporter_is_preset_and_one_may_be_added"), (VARIABLES, "the_variables_have_the_names_of_margo"), why=OPERATORS),
    both("OBS-03", (VARIABLES, "the_variables_have_the_names_of_margo"), (SHIPPED, "a_workload_reaches_it_with_the_variables_that_it_is_given"), ("tests/conformance/runtime/test_runtime.py", "every_container_is_told_where_the_collector_is"), ("tests/unit/adapters/runtime/test_kube.py", "variables_of_the_machine_are_for_every_container_that_has_none_of_that_name"), ("tests/conformance/runtime/test_helm_cluster.py", "charts_go_to_the_cluster_and_their_containers_are_told_where_the_collector_is")),
    open_("OBS-06", "Of an app's author."),
    open_("OBS-07", "Optional; central does not consume telemetry of devices over Margo."),
)
# fmt: on
