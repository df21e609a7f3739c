"""Every claim of the README's section "How memory works" and of the security page, and the tests that it rests on."""

from __future__ import annotations

import ast
import re

import pytest

from tests.harness import ROOT

#: A bullet's name, and for each of its sentences, in order, the tests that fail where it is not true.
CLAIMS: dict[str, list[str]] = {
    "Evidence": [
        (
            "test_evidence::test_a_quote_is_found_whatever_its_case_white_space_quotes_and_escapes "
            "test_projection::test_a_quote_is_looked_up_and_its_speaker_decides_how_far_it_is_trusted "
            "test_rules::test_a_quote_counts_by_its_words_and_is_kept_in_the_turns_own "
            "test_rules::test_a_quote_cut_out_of_a_negation_is_no_evidence"
        ),
        "test_projection::test_what_the_person_did_not_say_is_never_their_wish",
        (
            "test_evidence::test_what_a_stranger_taught_long_ago_reaches_no_file_later "
            "test_evidence::test_the_persons_word_brings_a_pages_claim_into_files "
            "test_rules::test_what_a_commands_result_shows_may_be_told_in_the_curators_words "
            "test_rules::test_only_results_are_told_in_other_words_and_never_of_the_person "
            "test_rules::test_nobodys_sentence_is_copied_into_a_file"
        ),
        "test_evidence::test_what_memory_returned_is_no_evidence_even_when_it_is_quoted",
    ],
    "Strangers": [
        (
            "test_evidence::test_a_strangers_sentence_is_the_strangers_whatever_is_cited_for_it "
            "test_origins::test_strangers_words_of_long_ago_and_of_another_session_are_still_theirs"
        ),
        (
            "test_guards::test_a_strangers_sentence_reaches_no_file_however_it_is_dressed "
            "test_guards::test_a_strangers_address_never_rides_on_a_true_line "
            "test_origins::test_a_pages_sentence_is_not_the_agents_however_it_came_there "
            "test_pasted::test_what_was_pasted_is_known_with_and_without_marks "
            "test_disguises::test_a_disguise_is_named_and_what_stands_so_where_it_comes_from_is_none"
        ),
        "test_unkept::test_the_words_of_the_whole_result_are_known_again",
        (
            "test_origins::test_a_line_about_the_person_needs_their_word_also_where_no_tool_ran "
            "test_persons_word::test_what_the_person_did_not_say_is_named"
        ),
        "test_persons_word::test_what_the_person_agreed_to_is_theirs_also_where_it_was_a_question",
        "test_whose_word::test_what_a_program_claims_of_the_person_is_its_word_until_they_say_it_themselves",
        "",  # a limit, said plainly
    ],
    "Sessions": [
        "test_curation_form::test_a_session_has_one_digest_and_no_file_line_rests_on_it_as_the_persons",
        "test_curation_form::test_standing_preferences_are_in_the_boot_prompt_however_old",
        "test_curation_form::test_a_learning_has_its_turns_day",
    ],
    "Validity": [
        (
            "test_validity::test_a_correction_supersedes_every_learning_it_names_and_they_stay_for_history "
            "test_search::test_what_was_superseded_stands_below_what_replaced_it"
        ),
        "test_validity::test_exact_and_near_repeats_are_counted_with_the_time_they_were_last_heard",
        (
            "test_validity::test_an_agent_does_not_take_back_what_the_person_said "
            "test_projection::test_only_the_persons_own_words_retire_what_is_known "
            "test_rules::test_an_action_is_closed_by_the_command_that_did_it_or_the_person"
        ),
    ],
    "Files": [
        (
            "test_curation_form::test_edits_change_a_file_and_what_they_do_not_name_stays "
            "test_rules::test_lines_left_out_without_a_reason_stand_again_at_their_place_and_the_rest_is_taken_over "
            "test_commands::test_status_says_what_needs_attention_and_what_was_refused"
        ),
        "test_curation_form::test_a_reminder_leaves_when_its_day_has_passed_and_its_action_stays",
        "test_curation_form::test_what_was_refused_is_shown_once",
        "test_guards::test_a_pinned_block_survives_every_rewrite_verbatim",
        (
            "test_drift_waits::test_a_file_that_changes_in_mid_turn_waits_for_the_persons_word "
            "test_page_drift::test_it_is_shown_on_every_page_with_what_would_change_and_accepted_it_is_the_file "
            "test_page_drift::test_discarded_the_file_is_on_disk_again_what_memory_has"
        ),
    ],
    "Search": [
        (
            "test_search::test_learnings_and_turns_stand_in_one_list_with_the_learning_first "
            "test_search::test_each_filter_keeps_only_what_fits "
            "test_search::test_around_shows_the_conversation_around_a_turn_in_its_order "
            "test_search::test_a_turn_is_found_from_the_moment_it_is_written_by_its_words_reply_and_tools "
            "test_search::test_how_far_learnings_reach_and_what_waits_is_said_truthfully"
        ),
        (
            "test_search::test_of_a_long_turn_the_passage_that_answers_is_shown_marked_as_cut "
            "test_search::test_last_week_is_the_days_of_that_week_without_saying_so "
            "test_search::test_a_misspelled_word_is_looked_for_as_the_log_spells_it_and_that_is_said"
        ),
    ],
    "Privacy": [
        (
            "test_privacy::test_a_missions_secrets_and_private_words_reach_the_agent_and_nothing_else "
            "test_redaction::test_of_200_secrets_in_20_formats_at_least_190_are_caught "
            "test_redaction::test_of_secrets_in_surroundings_that_no_rule_was_tried_on_19_in_20_are_caught "
            "test_redaction::test_what_stands_around_a_secret_stays_to_the_last_character"
        ),
        "test_privacy::test_a_missions_secrets_and_private_words_reach_the_agent_and_nothing_else",
        (
            "test_session_files::test_everything_that_the_cli_wrote_of_a_session_goes_when_it_ends "
            "test_session_files::test_a_killed_sprites_session_is_gone_on_with_and_what_others_left_goes_at_the_start"
        ),
        (
            "test_privacy::test_what_is_said_off_the_record_is_in_the_log_and_in_nothing_that_memory_makes "
            "test_off_record_turns::test_it_never_waits_to_be_curated_and_the_others_are "
            "test_off_record_turns::test_no_search_finds_it_also_not_beside_what_it_finds "
            "test_off_record_turns::test_no_first_prompt_has_it"
        ),
        (
            "test_forget::test_what_is_forgotten_leaves_no_byte_and_does_not_come_back "
            "test_forget::test_a_tombstone_says_when_and_how_much_and_not_what"
        ),
        "test_forget::test_a_deployed_file_stays_and_is_named",
    ],
    "Time": [
        (
            "test_commands::test_a_file_is_shown_as_it_is_and_as_it_was "
            "test_rebuild::test_a_rebuild_makes_every_table_and_file_as_they_were_to_the_byte "
            "test_rebuild::test_an_estimate_says_calls_tokens_and_dollars_and_asks_nobody "
            "test_rebuild::test_a_dry_run_changes_no_byte "
            "test_rebuild::test_the_curator_is_asked_about_every_turn_and_its_old_answers_stay_in_the_log"
        ),
    ],
    "Cost": [
        (
            "test_commands::test_status_says_the_same_to_programs "
            "test_curation_failures::test_a_cut_off_answer_splits_the_batch_an_empty_one_is_asked_again_and_both_count "
            "test_curation_failures::test_at_the_spending_cap_curation_says_so_and_capture_goes_on"
        ),
        "test_commands::test_an_unknown_price_is_said_to_be_unknown_and_counts_as_nothing",
    ],
    "Promises": [
        (
            "test_actions::test_an_action_has_its_time_in_the_persons_zone "
            "test_agent_actions::test_what_the_agent_schedules_is_a_row_of_its_turn_and_everybody_hears_of_it "
            "test_learned_actions::test_the_curator_closes_what_was_written_down_by_its_number"
        ),
        (
            "test_scheduler::test_killed_while_it_fires_it_fires_exactly_once "
            "test_schedules::test_under_kills_at_any_moment_each_action_fires_exactly_once "
            "test_scheduler::test_many_missed_moments_fire_once_and_say_how_late "
            "test_page_promise::test_every_weekday_at_eight_once_whatever_sleeps_or_is_killed"
        ),
        "test_recurrence::test_a_repeat_keeps_the_wall_clock_when_the_clocks_change",
        (
            "test_actions::test_fifty_open_ones_with_a_due_time_are_enough "
            "test_recurrence::test_a_rule_that_cannot_be_or_is_too_dense_is_refused "
            "test_scheduler::test_what_fires_by_itself_cannot_multiply"
        ),
    ],
    "The canvas": [
        (
            "test_board::test_a_new_session_changes_a_card_that_it_has_not_drawn "
            "test_board::test_what_the_person_did_reaches_the_agent_once_also_after_a_kill_and_only_the_agent_hears_it_whole"
        ),
        "test_board::test_the_agents_late_change_is_refused_with_what_the_person_wrote_in_mid_turn",
        "test_canvas_reader::test_a_sentence_that_only_a_card_says_is_no_wish_of_the_persons",
    ],
    "Files on disk": [
        (
            "test_user_files::test_what_changed_is_a_turn_of_the_log_once "
            "test_user_files::test_a_new_session_is_told_what_memory_does_not_know"
        ),
    ],
    "Before Sprite": [
        (
            "test_import::test_a_second_import_adds_nothing "
            "test_import::test_an_import_is_curated_by_the_next_sprite_and_found_by_its_search"
        ),
        (
            "test_importing::test_everything_is_taken_once_and_a_dry_run_says_the_same_and_writes_nothing "
            "test_imported_notes::test_each_note_is_proposed_once_whatever_the_person_says_to_it"
        ),
        "test_mcp::test_it_offers_tools_which_only_read",
    ],
    "Yours to take": [
        (
            "test_archive::test_an_archive_is_plain_text_that_anybody_can_read "
            "test_archive::test_an_export_beside_a_writer_sees_one_moment "
            "test_archive::test_an_import_gives_the_same_bytes_back "
            "test_archive_commands::test_an_agent_goes_on_where_its_archive_was_imported"
        ),
    ],
}


def section() -> dict[str, list[str]]:
    """The bullets of the section, each as its sentences."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").split("## How memory works")[1].split("\n## ")[0]
    bullets = re.findall(r"^- \*\*(.+?)\.\*\* (.+?)(?=^- \*\*|\Z)", text, re.MULTILINE | re.DOTALL)
    return {name: re.split(r"(?<=[.])\s+(?=[A-Z`])", " ".join(claims.split())) for name, claims in bullets}


def test_every_claim_is_listed_and_nothing_else() -> None:
    assert {name: len(claims) for name, claims in section().items()} == {
        name: len(tests) for name, tests in CLAIMS.items()
    }


SECURITY = (ROOT / "docs/security.md").read_text(encoding="utf-8")
TESTS = sorted(
    {test for claims in CLAIMS.values() for tests in claims for test in tests.split()}
    | set(re.findall(r"`(test_\w+::test_\w+)`", SECURITY))
)


def test_every_promise_of_the_security_page_names_tests() -> None:
    rows = [
        line for line in SECURITY.splitlines() if line.startswith("|") and not line.startswith(("| promise", "|---"))
    ]
    assert rows
    for row in rows:
        assert re.search(r"`test_\w+::test_\w+`", row) or all(
            (ROOT / path).is_file() for path in re.findall(r"`(tests/\S+)`", row) or ["none"]
        ), row


@pytest.mark.parametrize("test", TESTS)
def test_what_a_claim_rests_on_is_there(test: str) -> None:
    module, name = test.split("::")
    (path,) = (ROOT / "tests").rglob(f"{module}.py")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
