import json

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from services.training import recipes
from services.training.files import write_json, write_tensors
from services.training.recipes import DFlashForm
from tests.engine import tiny

CONTROL = ("<|im_start|>", "<|im_end|>", "<spare>")
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="session")
def target(tmp_path_factory):
    """The folder of a small random Llama in fp32."""
    folder = tmp_path_factory.mktemp("target")
    tiny.write(folder, num_hidden_layers=6, num_key_value_heads=2)
    return folder


@pytest.fixture(scope="session")
def talker(tmp_path_factory):
    """The same with a tokenizer that knows bytes, and a chat template."""
    folder = tmp_path_factory.mktemp("talker")
    tokenizer = Tokenizer(models.BPE({letter: id for id, letter in enumerate(sorted(_alphabet()))}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in CONTROL])
    tiny.write(folder, num_hidden_layers=6, vocab_size=tokenizer.get_vocab_size())
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE, "eos_token": CONTROL[1]}))
    return folder


def _alphabet():
    return pre_tokenizers.ByteLevel.alphabet()


@pytest.fixture(scope="session")
def form():
    return DFlashForm(layers=2, block_size=5, mask_id=99, taps=(1, 2, 4), rank=6, candidates=4, conv_group=16)


@pytest.fixture(scope="session")
def exported():
    """Write a module as the folder of a drafter, in fp32."""

    def export(folder, model, config):
        write_tensors(folder / "model.safetensors", recipes.tensors(model))
        write_json(folder / "config.json", config)
        return folder

    return export
