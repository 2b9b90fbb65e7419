"""The shared vectors, made by independent implementations."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from syncline.core.errors import DecodeError, DeltaError
from syncline.protocols.sdsp import checksums, wire
from syncline.protocols.sdsp.deltas import Budget, Deltas
from syncline.protocols.sdsp.rebuild import Problem, State, chain, fold
from syncline.protocols.sdsp.wire import Checksum, ObjectKind

Vectors = Callable[[str], list[dict[str, Any]]]
DELTAS = Deltas()


def named(vectors: Vectors, prefix: str) -> list[dict[str, Any]]:
    found = [vector for vector in vectors("sdsp") if vector["name"].startswith(prefix)]
    assert found
    return found


def decoded(text: str) -> list[wire.Frame]:
    return [wire.decode(line.encode()) for line in text.splitlines()]


@pytest.mark.parametrize("in_place", [True, False])
def test_every_text_delta_vector_applies_or_fails_as_it_says(vectors: Vectors, in_place: bool) -> None:
    for vector in [*named(vectors, "jp_"), *named(vectors, "md_")]:
        meaning = vector["meaning"]
        algorithm = DELTAS[meaning["alg"]]
        delta = json.loads(vector["text"]) if meaning["alg"] == "jp" else vector["text"]
        before = copy.deepcopy(meaning["before"])
        if meaning.get("error"):
            with pytest.raises(DeltaError):
                algorithm.apply(before, delta, Budget(), in_place=in_place)
            assert before == meaning["after_failure"], vector["name"]
        else:
            assert algorithm.apply(before, delta, Budget(), in_place=in_place) == meaning["after"], vector["name"]
            assert in_place or before == meaning["before"], vector["name"]


def test_a_patch_may_come_as_json_text(vectors: Vectors) -> None:
    for vector in named(vectors, "jp_"):
        meaning = vector["meaning"]
        if not meaning.get("error"):
            assert DELTAS["jp"].apply(meaning["before"], vector["text"], Budget()) == meaning["after"]


def test_every_vcdiff_vector_is_read_even_with_the_extensions_of_xdelta3(vectors: Vectors) -> None:
    for vector in named(vectors, "vcdiff_"):
        source = bytes.fromhex(vector["meaning"]["source_hex"])
        target = bytes.fromhex(vector["meaning"]["target_hex"])
        made = DELTAS["X-vcdiff"].apply(source, bytes.fromhex(vector["hex"]), Budget())
        assert made == target, vector["name"]


def test_canonical_json_and_its_checksums_are_those_of_other_implementations(vectors: Vectors) -> None:
    for vector in named(vectors, "cs_"):
        value, meaning = json.loads(vector["text"]), vector["meaning"]
        canonical = checksums.jcs(value)
        assert canonical == bytes.fromhex(meaning["jcs_hex"]), vector["name"]
        assert canonical.decode() == meaning["jcs"]
        assert checksums.checksum_of(value, ObjectKind.JSON) == Checksum(**meaning["checksum"])
        for type_, val in (("MD5", meaning["md5"]), ("utf-8/SHA-512", meaning["sha512"])):
            assert checksums.matches(value, ObjectKind.JSON, Checksum(val, type_)) is True
            assert checksums.matches(value, ObjectKind.JSON, Checksum(val.upper(), type_)) is True
        assert hashlib.sha256(canonical).hexdigest() == meaning["checksum"]["val"]


def test_every_frame_sequence_gives_the_stated_objects(vectors: Vectors) -> None:
    for vector in named(vectors, "frames_"):
        state: State | None = None
        seen = []
        for frame in decoded(vector["text"]):
            folded = fold(state, frame, DELTAS)
            assert isinstance(folded, State), (vector["name"], folded)
            state = folded
            seen.append(state.value)
        assert seen == vector["meaning"]["state_after_each"], vector["name"]
        assert state is not None
        assert state.frozen is ("frozen_after" in vector["meaning"])


def test_an_unsorted_history_with_repeats_and_strangers_gives_the_object(vectors: Vectors) -> None:
    (vector,) = named(vectors, "history_")
    last = wire.decode(json.dumps(vector["meaning"]["received_frame"]).encode())
    offered, refused = [], 0
    for item in json.loads(vector["text"]):
        try:
            offered.append(wire.decode(json.dumps(item).encode()))
        except DecodeError:
            refused += 1
    assert refused == 1  # ver 9 at serial 3 reaches back before the first frame
    found = chain(offered, last)
    assert not isinstance(found, Problem)
    assert [frame.serial for frame in found] == [4, 5, 6]
    state: State | None = None
    for frame in [*found, last]:
        folded = fold(state, frame, DELTAS)
        assert isinstance(folded, State)
        state = folded
    assert state is not None
    assert state.value == vector["meaning"]["object_after"]


def test_every_bad_frame_is_refused(vectors: Vectors) -> None:
    for vector in named(vectors, "frame_bad"):
        assert vector["expect"] == "reject"
        with pytest.raises(DecodeError):
            wire.decode(vector["text"].encode())
