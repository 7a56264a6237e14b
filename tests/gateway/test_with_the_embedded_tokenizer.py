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


@pytest.fixture(scope="module")
def files(embedded_model):
    return TokenizerFiles.read(embedded_model)


@pytest.mark.parametrize("size", [1, 2, 5, 100])
async def test_prompt_and_answer_survive_the_way_through(gateway, files, size):
    tokenizer = Tokenizer(files)
    ids = tokenizer.encode(ANSWER)
    rounds = [Round(ids[start : start + size]) for start in range(0, len(ids), size)]
    kind = FINISH_KINDS.value("stop_token")
    rounds.append(Round([tokenizer.eos_id], finish=Finish(kind=kind, stop_id=tokenizer.eos_id)))
    messages = [{"role": "user", "content": "Say <|im_end|> in French."}]
    async with gateway(lambda request: rounds, files=files) as peers:
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
