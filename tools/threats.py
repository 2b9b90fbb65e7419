"""The threats every surface must meet, each with a test and the cut-off it holds to. `tools/reliability.py` prints them."""

from __future__ import annotations

from typing import Final, NamedTuple


class Threat(NamedTuple):
    surface: str
    threat: str
    test: str  # file::function, below tests
    cut_off: str


THREATS: Final = tuple(
    Threat(*row)
    for row in (
        ("every decoder", "truncated, non-canonical, lying lengths, random bytes", "campaigns/test_fuzz.py::test_a_decoder_meets_a_strangers_bytes_with_typed_errors_only", "typed error; under 200 MB"),
        ("every decoder", "each MUST and each limit broken", "campaigns/test_bad_inputs.py::test_every_named_bad_input_is_refused_for_its_own_reason", "refused by name, never kept as valid"),
        ("every decoder", "giant lengths before their bytes", "formats/test_tlv.py::test_a_giant_length_is_refused_before_its_bytes_have_come", "refused at the header"),
        ("every decoder", "deeply nested", "protocols/sdsp/test_wire.py::test_a_frame_may_be_nested_as_deep_as_the_limit_and_no_deeper", "128 levels"),
        ("every decoder", "aliased offsets that unpack to gigabytes", "formats/flatbuffers/test_reader.py::test_a_small_buffer_that_unpacks_to_much_is_refused_as_too_complex", "an allowance by the buffer's length"),
        ("every decoder", "patch copy bombs", "protocols/sdsp/deltas/test_jp.py::test_a_copy_bomb_is_stopped_by_its_size", "64 MiB of object; 100,000 operations"),
        ("every decoder", "VCDIFF bombs", "protocols/sdsp/deltas/test_vcdiff.py::test_a_bomb_is_refused_before_it_goes_off", "64 MiB of object"),
        ("every decoder", "gzip bombs", "networks/test_fetch.py::test_a_gzip_bomb_is_refused_without_being_unpacked", "64 MiB after unpacking"),
        ("every decoder", "segment bombs", "protocols/svs/test_session.py::test_segments_waiting_for_others_are_bounded", "segments and bytes of a publication bounded before it is assembled"),
        ("journal", "id squatting by a forged copy", "journal/test_store.py::test_a_forged_copy_that_arrives_first_does_not_keep_the_honest_message_out", "ids are unique among accepted rows only"),
        ("journal", "reject floods", "journal/test_refusals.py::test_rejects_over_the_cap_of_a_peer_are_only_counted", "1,000 rows a peer and hour, then counted"),
        ("journal", "many peers that reject-flood", "journal/test_refusals.py::test_peers_beyond_the_cap_on_names_share_one_share", "10,000 peers by name, the rest share"),
        ("journal", "a disk that fills", "journal/test_refusals.py::test_a_filling_disk_stops_rejects_first_and_then_everything", "512 MiB free: no rejects; 128 MiB: nothing"),
        ("journal", "replay after retention", "protocols/sds/test_rules.py::test_a_replay_from_before_the_memory_of_ids_is_ignored", "older than ids are remembered: ignored"),
        ("journal", "names and ids that do not fit", "node/test_node.py::test_an_arrival_the_journal_would_not_take_is_refused_instead", "1,024 characters; ids 4,160 bytes"),
        ("libp2p", "unsigned flood", "networks/libp2p/test_overlay.py::test_an_unsigned_flood_costs_its_sender_the_connection", "16 faults, then cut and banned for 5 min"),
        ("libp2p", "forged flood", "networks/libp2p/test_overlay.py::test_forged_messages_are_refused_handed_over_if_asked_and_end_in_a_ban", "16 faults, then cut and banned for 5 min"),
        ("libp2p", "replayed flood", "networks/pubsub/test_parts.py::test_what_was_seen_is_bounded_in_number_and_time", "65,536 ids for 2 min; a repeat costs a look"),
        ("libp2p", "IHAVE and IWANT spam", "networks/pubsub/test_gossip.py::test_control_spam_is_not_heard", "512 control RPCs and 5,000 ids a heartbeat"),
        ("libp2p", "subscription spam", "networks/libp2p/test_overlay.py::test_subscriptions_of_one_peer_are_bounded", "256 topics a peer"),
        ("libp2p", "many connections from one address", "networks/libp2p/test_host.py::test_connections_from_one_address_are_limited", "16 an address, 5 new a second, 128 in all"),
        ("libp2p", "slow readers", "networks/libp2p/test_host.py::test_a_peer_that_reads_nothing_is_cut_as_a_slow_reader", "5 s without taking anything"),
        ("libp2p", "slow readers that come back", "networks/libp2p/test_overlay.py::test_slow_peers_that_come_back_to_be_slow_again_are_banned_in_the_end", "counted as faults"),
        ("libp2p", "a validator that raises", "networks/libp2p/test_overlay.py::test_a_fault_of_ours_while_judging_is_held_against_nobody", "kept as judge_failed; nobody blamed"),
        ("SDS streams", "filter bombs", "protocols/sds/test_filters.py::test_filters_nest_eight_deep_and_no_deeper", "8 deep, 64 conditions"),
        ("SDS streams", "unindexed scans at full rate", "protocols/sds/test_session.py::test_a_query_that_would_look_at_too_much_is_error_5", "10 s or a bound on records; error 5"),
        ("SDS streams", "queries at full rate", "protocols/sds/test_session.py::test_the_hundred_and_first_query_in_a_second_is_error_3", "100 a second of a peer; error 3"),
        ("SDS streams", "all-ones bloom filter", "protocols/sds/test_bloom.py::test_a_filter_that_cannot_be_meant_is_refused", "refused; counted as a query"),
        ("SDS streams", "giant offsets", "protocols/sds/test_session.py::test_a_query_that_cannot_be_answered_is_error_1_naming_why", "error 1"),
        ("SDS streams", "hello games", "protocols/sds/test_session.py::test_a_second_hello_is_error_1_and_the_end", "error 1 and the end of the stream"),
        ("SDSP", "takeover of a uid", "protocols/sdsp/test_rules.py::test_an_object_belongs_to_its_first_vouched_publisher", "rejected"),
        ("SDSP", "serial jumps", "protocols/sdsp/test_rules.py::test_a_huge_serial_does_not_take_an_object_over", "1,000,000 ahead, unless vouched for"),
        ("SDSP", "forks", "protocols/sdsp/session/test_subscriber.py::test_a_fork_is_reported_put_aside_and_mended_by_the_next_full_frame", "reported; neither copy believed"),
        ("SDSP", "SSRF: loopback in every spelling, mapped IPv6", "networks/test_fetch.py::test_loopback_is_refused_however_it_is_written", "never connected to"),
        ("SDSP", "SSRF: rebinding", "networks/test_fetch.py::test_a_name_that_has_been_rebound_by_the_time_of_a_redirect_is_refused", "a name is looked up once; that answer is connected to"),
        ("SDSP", "SSRF: redirects", "networks/test_fetch.py::test_a_redirect_to_a_refused_place_is_not_followed", "3 redirects, each checked"),
        ("SDSP", "token guessing", "protocols/sdsp/test_service.py::test_its_token_opens_nothing_else", "128-bit tokens, one for each object"),
        ("relay", "JWT alg, aud and expiry tricks", "protocols/relay/test_tokens.py::test_only_one_algorithm_is_accepted", "EdDSA only; code 3000"),
        ("relay", "JWT claims", "protocols/relay/test_tokens.py::test_claims_that_do_not_fit_are_refused", "one audience, expiry required"),
        ("relay", "future timestamps", "protocols/relay/test_links.py::test_a_future_timestamp_never_keeps_a_message_longer", "clock skew allowed, then rejected"),
        ("relay", "mailbox exhaustion", "protocols/relay/test_requests.py::test_a_topic_a_client_and_the_server_have_room_for_so_much", "messages and bytes by topic, client and server"),
        ("relay", "interest exhaustion", "protocols/relay/test_links.py::test_too_much_interest_ends_the_link", "topics of a server bounded; the link ends"),
        ("relay", "links from unknown servers", "protocols/relay/test_links.py::test_an_unknown_server_is_refused_although_its_proof_is_good", "refused at the challenge"),
        ("relay", "loops", "protocols/relay/test_federation.py::test_interest_ends_with_the_last_subscriber_even_in_a_loop", "each message crosses a link once"),
        ("relay", "request floods", "protocols/relay/test_server.py::test_a_flood_is_answered_and_then_cut_off", "200 a second; 1,000 refusals, then code 3001"),
        ("NDN", "PIT flooding", "networks/ndn/test_floods.py::test_a_flood_of_interests_fills_only_the_floods_share", "8,192 pending a face"),
        ("NDN", "CS flooding", "networks/ndn/test_floods.py::test_a_flood_of_data_stays_within_packets_and_bytes", "16,384 packets; bytes bounded"),
        ("NDN", "CS poisoning", "networks/ndn/test_content.py::test_poisoned_content_is_not_served_twice_to_the_same_face", "what our keys refuse is not cached"),
        ("NDN", "command replay", "networks/ndn/test_management.py::test_a_replayed_command_is_refused", "nonces and times remembered"),
        ("NDN", "forged mappings", "protocols/svs/test_rules.py::test_a_bad_mapping_is_rejected_with_its_reason", "rejected"),
        ("NDN", "state vectors with 2^63", "protocols/svs/test_liars.py::test_numbers_beyond_all_bounds_are_not_believed", "a jump is believed when proven"),
        ("NDN", "state vectors of ten thousand nodes", "protocols/svs/test_liars.py::test_unknown_nodes_by_the_thousand_are_bounded_and_make_no_storm", "unproven nodes share a bounded part"),
        ("NDN", "LP reassembly", "networks/ndn/test_floods.py::test_fragments_that_never_complete_are_bounded", "packets and bytes under way bounded"),
        ("ShrEx", "future heights", "protocols/shrex/test_session.py::test_what_waits_is_bounded_by_peer_and_by_height", "16 of a peer, 100 heights ahead"),
        ("ShrEx", "unknown hashes", "protocols/shrex/test_session.py::test_a_hash_known_to_be_false_is_not_waited_for", "remembered, 1,024 of them"),
        ("ShrEx", "lying bridges", "protocols/shrex/test_simulation.py::test_every_light_node_ends_with_honest_peers_only", "rejected against the header; 16 faults"),
        ("ShrEx", "pool exhaustion", "protocols/shrex/test_peers.py::test_everything_the_manager_keeps_is_bounded", "1,024 peers a pool, 10 pools"),
        ("HTTP, WebSocket, page", "cross-site requests to loopback", "node/test_api.py::test_host_and_origin_are_checked", "403 before the route"),
        ("HTTP, WebSocket, page", "pages of strangers on the relay", "protocols/relay/test_server.py::test_pages_of_strangers_may_not_connect_unless_listed", "refused at the handshake"),
        ("HTTP, WebSocket, page", "missing token", "node/test_api.py::test_a_token_is_asked_for_on_every_route", "401"),
        ("HTTP, WebSocket, page", "large bodies", "node/test_api.py::test_a_body_over_the_limit_is_refused_declared_or_not", "8 MiB"),
        ("HTTP, WebSocket, page", "path tricks", "campaigns/test_bad_peers.py::test_honest_peers_hardly_notice_bad_ones", "403 or 404"),
        ("HTTP, WebSocket, page", "hostile message content", "browser/test_dashboard.py::test_what_a_stranger_wrote_is_shown_as_text_and_never_run", "escaped; CSP"),
        ("query", "anything but reading the tables", "lake/test_query.py::test_nothing_but_reading_the_tables_is_possible", "refused"),
        ("query", "endless statements", "lake/test_query.py::test_a_query_that_takes_too_long_is_stopped", "30 s"),
        ("query", "memory", "lake/test_query.py::test_a_query_that_needs_too_much_memory_is_refused", "1 GiB; 10,000 rows"),
    )
)  # fmt: skip
