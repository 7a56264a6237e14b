"""Prompts: read, built in, or written by the target."""

import json
import random

import pytest

from services.errors import BadConfig
from services.training.answer import read_answers
from services.training.data import Target
from services.training.prompts import built_in, read_prompts


@pytest.fixture(scope="module")
def chats(talker):
    return Target(talker).chats


def test_built_in_prompts_are_many_and_the_same_for_the_same_dice():
    prompts = [built_in(random.Random(n))[0]["content"] for n in range(500)]
    assert prompts == [built_in(random.Random(n))[0]["content"] for n in range(500)]
    assert len(set(prompts)) > 450
    assert not any("{" in prompt for prompt in prompts)


def test_the_user_header_is_what_comes_before_what_the_user_says(chats, talker):
    tokenizer = Target(talker).tokenizer
    assert tokenizer.decode(chats.user_header, skip_special=False) == "<|im_start|>user\n"
    assert "<|im_end|>" in {tokenizer.token(id) for id in chats.turn_end}


def test_a_turn_that_the_target_wrote_begins_a_chat_when_it_is_whole(chats, talker):
    tokenizer = Target(talker).tokenizer
    encode, end = tokenizer.encode, tokenizer.eos_id
    assert chats.user_turn([*encode(" How do magnets work? "), end]) == [
        {"role": "user", "content": "How do magnets work?"}
    ]
    assert chats.user_turn(encode("How do magnets work?")) is None
    assert chats.user_turn([*encode("Hi"), end]) is None
    assert chats.user_turn([]) is None


def test_prompts_come_from_files_and_folders(tmp_path):
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    (tmp_path / "a.jsonl").write_text(json.dumps({"prompt": "One"}) + "\n\n" + json.dumps({"messages": chat}) + "\n")
    (tmp_path / "b.txt").write_text("Two\n")
    assert read_prompts(tmp_path) == [
        [{"role": "user", "content": "One"}],
        chat,
        [{"role": "user", "content": "Two\n"}],
    ]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", "{", "a.jsonl, line 1: not JSON"),
        ("a.jsonl", '{"prompt": "x"}\n{"prompt": 3}', "a.jsonl, line 2: has to have either prompt"),
        ("a.jsonl", '{"prompt": "x", "messages": [{}]}', "line 1: has to have either"),
        ("a.jsonl", "", "has none"),
        ("a.csv", "x", "a.csv is neither .jsonl nor .txt"),
    ],
)
def test_a_prompt_file_that_cannot_be_used_is_refused_by_line(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(BadConfig, match=message):
        read_prompts(tmp_path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[]", "line 1: not a JSON object"),
        ('{"prompt_ids": [1], "ids": []}', "line 1: ids has to be a list of ids from 0 to 9"),
        ('{"prompt_ids": [10], "ids": [1]}', "line 1: prompt_ids has to be"),
        ('{"prompt_ids": [1], "ids": [1], "temperature": true}', "line 1: temperature is True"),
    ],
)
def test_an_answer_file_that_cannot_be_used_is_refused_by_line(tmp_path, line, message):
    (tmp_path / "a.jsonl").write_text(line)
    with pytest.raises(BadConfig, match=message):
        list(read_answers(tmp_path / "a.jsonl", vocab_size=10))
