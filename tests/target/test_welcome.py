"""A drafter's word about itself: what a target takes of it, and what it refuses, each with its reason."""

import pytest
from tandem.v1 import drafter_pb2 as pb
from tandem.v1 import types_pb2

from services.target.link.welcome import usable

NGRAM, MTP = types_pb2.SPECULATION_MODE_NGRAM, types_pb2.SPECULATION_MODE_MTP
HELLO = pb.Hello(layers=4)


def welcomed(*drafters: pb.DrafterDescription) -> pb.Welcome:
    return usable(pb.Welcome(instance="theirs", drafters=drafters, max_contexts=8, ring_mapped=True), HELLO)


def described(**fields) -> pb.DrafterDescription:
    return pb.DrafterDescription(**{"mode": NGRAM, "name": "n", "max_draft_tokens": 7, **fields})


@pytest.mark.parametrize(
    ("said", "taken"),
    [
        ((7, 3), (7, 3)),
        ((15, 15), (15, 15)),
        ((16, 16), (15, 15)),
        ((4000, 2), (15, 2)),
        ((7, 9), (7, 7)),
        ((7, 0), (7, 7)),
    ],
)
def test_lengths_are_shortened_to_what_a_round_verifies(said, taken) -> None:
    [drafter] = welcomed(described(max_draft_tokens=said[0], default_draft_tokens=said[1])).drafters
    assert (drafter.max_draft_tokens, drafter.default_draft_tokens) == taken


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"max_draft_tokens": 0}, "max_draft_tokens is 0"),
        ({"tap_layers": [0, 4]}, "it needs what layer 4 computes; the model has layers 0 to 3"),
        ({"mode": 99}, "its mode, number 99"),
        ({"mode": types_pb2.SPECULATION_MODE_AUTO}, "none that drafts here"),
        ({"mode": types_pb2.SPECULATION_MODE_NONE}, "none that drafts here"),
        ({"mode": types_pb2.SPECULATION_MODE_UNSPECIFIED}, "none that drafts here"),
    ],
)
def test_a_drafter_that_cannot_be_used_is_refused_and_the_others_serve(fields, why) -> None:
    welcome = welcomed(described(name="bad", **fields), described(mode=MTP, name="good"))
    assert [each.name for each in welcome.drafters] == ["good"]
    [refusal] = welcome.refusals
    assert refusal.name == "bad"
    assert why in refusal.reason


def test_of_two_drafters_of_one_mode_the_first_serves() -> None:
    welcome = welcomed(described(name="first"), described(name="second"))
    assert [each.name for each in welcome.drafters] == ["first"]
    assert [(each.name, each.reason) for each in welcome.refusals] == [
        ("second", "another drafter of the same mode came before it")
    ]


def test_a_mode_that_only_the_drafter_knows_stays_out_of_what_the_target_passes_on() -> None:
    theirs = pb.Welcome(
        refusals=[pb.DrafterRefusal(mode=99, name="new", reason="its own"), pb.DrafterRefusal(mode=MTP)]
    )
    assert [(each.mode, each.name, each.reason) for each in usable(theirs, HELLO).refusals] == [
        (types_pb2.SPECULATION_MODE_UNSPECIFIED, "new", "its own"),
        (MTP, "", ""),
    ]


def test_what_is_not_about_drafters_is_kept() -> None:
    welcome = welcomed(described())
    assert (welcome.instance, welcome.max_contexts, welcome.ring_mapped) == ("theirs", 8, True)
