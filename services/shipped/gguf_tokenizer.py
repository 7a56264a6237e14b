"""The tokenizer inside a GGUF file as `tokenizer.json` and `tokenizer_config.json`."""

from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from services.errors import BadCheckpoint

CONTROL = 3  # the GGUF type of a token that text never spells


def tokenizer(fields: Mapping[str, Any]) -> Tokenizer:
    """Byte-level BPE that cuts digits apart first, which is what `pre = smollm` stands for."""
    kind = fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.pre")
    if kind != ("gpt2", "smollm"):
        raise BadCheckpoint(f"the GGUF file has a tokenizer of kind {kind}, not ('gpt2', 'smollm')")
    tokens = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    result = Tokenizer(models.BPE({token: id for id, token in enumerate(tokens)}, merges))
    result.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    result.decoder = decoders.ByteLevel()
    types = fields["tokenizer.ggml.token_type"]
    result.add_special_tokens(
        [AddedToken(token, special=True) for token, type in zip(tokens, types, strict=True) if type == CONTROL]
    )
    return result


def tokenizer_config(fields: Mapping[str, Any]) -> dict[str, Any]:
    tokens = fields["tokenizer.ggml.tokens"]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[fields["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[fields["tokenizer.ggml.eos_token_id"]],
        "unk_token": tokens[fields["tokenizer.ggml.unknown_token_id"]],
        "pad_token": tokens[fields["tokenizer.ggml.padding_token_id"]],
        "add_prefix_space": fields["tokenizer.ggml.add_space_prefix"],
        "clean_up_tokenization_spaces": False,
        "model_max_length": fields["llama.context_length"],
        "chat_template": fields["tokenizer.chat_template"],
    }
