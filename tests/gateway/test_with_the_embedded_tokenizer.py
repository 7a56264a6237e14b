"""The same hops with the tokenizer and template of the embedded model."""

import pytest
from tandem.v1.target_pb2 import Finish

from services.text.files import TokenizerFiles
from services.text.template import ChatTemplate
from services.text.tokenizer import Tokenizer
from services.wire.codec import FINISH_KINDS
from tests.gateway.peers import frames
from tests.gateway.scripted_target import Round

pytestmark = pytest.mark.anyio

ANSWER = " Voilà — 漢字, 👩‍👩‍👧 and\n\tdef f(x): return x ** 2  "


async def test_prompt_and_answer_survive_the_way_through(gateway, embedded_model):
    files = TokenizerFiles.read(embedded_model)
    tokenizer = Tokenizer(files)
    ids = tokenizer.encode(ANSWER)
    end = Round([tokenizer.eos_id], finish=Finish(kind=FINISH_KINDS.value("stop_token"), stop_id=tokenizer.eos_id))
    messages = [{"role": "user", "content": "Say <|im_end|> in French."}]
    async with gateway(files=files) as peers:
        for size in (1, 2, 5, len(ids)):
            rounds = [*(Round(ids[start : start + size]) for start in range(0, len(ids), size)), end]
            peers.target.play(lambda request, rounds=rounds: rounds)
            *chunks, _ = frames(await peers.chat(stream=True, messages=messages))
            whole = (await peers.chat(messages=messages)).json()
            pieces = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks]
            assert "".join(pieces) == whole["choices"][0]["message"]["content"] == ANSWER
            assert not any("�" in piece for piece in pieces)
    prompt = list(peers.target.calls[0].request.prompt_ids)
    assert prompt == ChatTemplate.of(files).encode(tokenizer, messages)
    assert prompt.count(tokenizer.eos_id) == 2, "the end of the system turn and of the user's, and none that was typed"
    assert whole["usage"] == {
        "prompt_tokens": len(prompt),
        "completion_tokens": len(ids) + 1,
        "total_tokens": len(prompt) + len(ids) + 1,
    }
