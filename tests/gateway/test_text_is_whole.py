"""No character is torn, none is lost, and no stop string shows even in part."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tandem.v1 import generation_pb2 as pb
from tandem.v1.target_pb2 import Finish
from tokenizers import Tokenizer as Made
from tokenizers import decoders, models, normalizers, pre_tokenizers

from services.gateway.visible import VisibleText
from services.text.files import TokenizerFiles
from services.text.tokenizer import Tokenizer
from services.wire.codec import FINISH_KINDS
from tests.gateway.peers import frames
from tests.gateway.scripted_target import TOKENIZER, Round, ends, says, stops

pytestmark = pytest.mark.anyio

EMOJI, CJK, FAMILY = "😀", "漢字", "👩‍👩‍👧"


def rounds_of(text: str, sizes: list[int]) -> list[Round]:
    """The bytes of `text` in rounds of these sizes, then the end."""
    ids, rounds = TOKENIZER.encode(text), []
    for size in sizes:
        rounds.append(Round(ids[:size]))
        ids = ids[size:]
    assert not ids
    return [*rounds, ends()]


def contents(chunks) -> list[str]:
    return [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks if chunk != "[DONE]"]


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (EMOJI, [1, 1, 1, 1]),
        (EMOJI, [2, 2]),
        (EMOJI, [3, 1]),
        (f"a{EMOJI}b", [2, 1, 1, 2]),
        (CJK, [1, 4, 1]),
        (FAMILY, [5, 5, 5, 3]),
    ],
)
async def test_a_character_comes_whole_however_its_bytes_are_spread(gateway, text, sizes):
    async with gateway(lambda request: rounds_of(text, sizes)) as peers:
        pieces = contents(frames(await peers.chat(stream=True)))
        whole = (await peers.chat()).json()["choices"][0]["message"]["content"]
        over_grpc = [message.text async for message in peers.stub.Generate(pb.GenerateRequest(text="hi"))]
    assert "".join(pieces) == "".join(over_grpc) == whole == text
    assert "�" not in "".join(pieces)


async def test_a_character_cut_by_the_limit_shows_as_decoding_shows_it(gateway):
    ids = TOKENIZER.encode(f"a{EMOJI}")[:3]
    last = Round(ids, finish=Finish(kind=FINISH_KINDS.value("length")))
    async with gateway(lambda request: [last]) as peers:
        pieces = contents(frames(await peers.chat(stream=True)))
    assert "".join(pieces) == TOKENIZER.decode(ids)


async def test_a_leading_space_of_the_answer_and_of_each_round_survives(gateway):
    async with gateway(lambda request: [says(" so"), says("  far"), ends(" ")]) as peers:
        pieces = contents(frames(await peers.chat(stream=True)))
    assert "".join(pieces) == " so  far "


@pytest.mark.parametrize("size", [1, 5])
async def test_the_beginning_of_a_stop_string_never_shows(gateway, size):
    text, stop = "x y END-OF-LIST", "END-OF-LIST"
    *rounds, last = [text[start : start + size] for start in range(0, len(text), size)]
    script = [*map(says, rounds), stops(last, stop, at=4)]
    async with gateway(lambda request: script) as peers:
        pieces = contents(frames(await peers.chat(stream=True, stop=[stop])))
    assert "".join(pieces) == "x y "


@pytest.mark.parametrize("size", [1, 5])
async def test_a_false_start_of_a_stop_string_is_given_back_whole(gateway, size):
    text = "x y END-OF-DAY"
    script = [*(says(text[start : start + size]) for start in range(0, len(text), size)), ends()]
    async with gateway(lambda request: script) as peers:
        pieces = contents(frames(await peers.chat(stream=True, stop=["END-OF-LIST"])))
    assert "".join(pieces) == text


async def test_what_is_held_when_the_answer_ends_comes_at_last(gateway):
    async with gateway(lambda request: [says("a END"), ends()]) as peers:
        first, last, *_ = contents(frames(await peers.chat(stream=True, stop=["END-OF-LIST"])))
    assert (first, last) == ("a ", "END")


@pytest.mark.parametrize(
    ("rounds", "stop", "string", "at"),
    [
        (["." + "x" * 14], ["."], ".", 0),  # at the first token of a long round
        (["ab<", ">cd"], ["<>"], "<>", 2),  # across rounds
        (["ab", "cd##"], ["##"], "##", 4),  # exactly at the end of a round
        (["one; two."], [".", ";"], ";", 3),  # the earliest of two
    ],
)
async def test_text_is_cut_where_the_target_says(gateway, rounds, stop, string, at):
    *first, last = rounds
    async with gateway(lambda request: [*map(says, first), stops(last, string, at=at)]) as peers:
        pieces = contents(frames(await peers.chat(stream=True, stop=stop)))
    assert "".join(pieces) == "".join(rounds)[:at]


async def test_a_stop_string_before_min_tokens_is_text_and_the_next_is_held_back_all_the_same(gateway):
    script = [says("##"), says("b#"), stops("#", "##", at=3)]
    async with gateway(lambda request: script) as peers:
        pieces = contents(frames(await peers.chat(stream=True, stop=["##"], min_tokens=3)))
    assert "".join(pieces) == "##b"


@given(
    text=st.text("aX漢😀", max_size=20),
    stop=st.sets(st.text("aX漢", min_size=1, max_size=4), max_size=3),
    data=st.data(),
)
def test_any_text_in_any_rounds_comes_out_up_to_its_first_stop(text, stop, data):
    found = [(text.find(string) + len(string), text.find(string)) for string in stop if string in text]
    end, at = min(found, default=(len(text), None))
    ids, visible, pieces = TOKENIZER.encode(text[:end]), VisibleText(TOKENIZER, sorted(stop), min_tokens=0), []
    while len(ids) > (size := data.draw(st.integers(1, 9))):
        pieces.append(visible.push(ids[:size]))
        ids = ids[size:]
    pieces.append(visible.finish(ids, end=at))
    assert "".join(pieces) == text[:at]
    assert all(text.startswith("".join(pieces[:count])) for count in range(len(pieces)))


def test_text_of_a_metaspace_tokenizer_keeps_its_spaces():
    words = ["▁", "▁Hello", "▁world", "!", "▁▁"]
    made = Made(models.BPE({word: id for id, word in enumerate(["<unk>", *words])}, [], unk_token="<unk>"))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer = Tokenizer(TokenizerFiles({"tokenizer.json": made.to_str().encode()}))
    ids = [5, 2, 3, 1, 4, 2]
    for size in range(1, len(ids) + 1):
        visible = VisibleText(tokenizer, [], min_tokens=0)
        pieces = [visible.push(ids[start : start + size]) for start in range(0, len(ids), size)]
        assert "".join([*pieces, visible.finish([], end=None)]) == tokenizer.decode(ids)
