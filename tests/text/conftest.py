"""Tokenizers small enough to read, of every kind that language models use."""

import json
from collections.abc import Callable, Mapping

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from services.text.files import TokenizerFiles

CORPUS = [
    "The quick brown fox jumps over the lazy dog. " * 3,
    "def main():\n    return {'a': 1, 'b': [2, 3]}\n",
    "Grüße aus München, où l'été est là — 日本語の文章です。 👩‍👩‍👧 🎉",
]
CONTROL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|a|>", "<|ab|>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
MARK = "▁"


def byte_level() -> Tokenizer:
    """GPT-2, Llama 3, Qwen, SmolLM."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=CONTROL[:3], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens(CONTROL)
    tokenizer.add_tokens(
        [AddedToken(text, normalized=False) for text in ("<think>", "</think>", "<tool>", "</tool>", "<td>", "    ")]
    )
    return tokenizer


def sentencepiece(*, legacy: bool, strips: bool = True) -> Tokenizer:
    """Llama 2 (`legacy`: the space before the first word is put there by a normalizer), Mistral, Gemma (no strip)."""
    letters = sorted({letter for text in CORPUS[:2] for letter in text.replace(" ", MARK)} | {"<", ">", "|", "/", "_"})
    tokens = ["<unk>", "<s>", "</s>", *BYTES, *letters]
    merges = [(MARK, "t"), (MARK, "T"), ("h", "e"), (MARK + "T", "he"), (MARK, MARK), (MARK + MARK, MARK + MARK)]
    vocabulary = {token: id for id, token in enumerate(dict.fromkeys([*tokens, *(a + b for a, b in merges)]))}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if legacy:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    else:
        scheme = "first" if strips else "never"
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=MARK, prepend_scheme=scheme, split=False)
    steps = [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if strips else steps)
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in ("<unk>", "<s>", "</s>")])
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in CONTROL])
    return tokenizer


def unigram() -> Tokenizer:
    """T5 and its like: the model itself knows `</s>`, and finds it in any text."""
    letters = sorted({letter for text in CORPUS for letter in text.replace(" ", MARK)} | {"<", ">", "|", "/", "_"})
    pieces = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0), *((letter, -10.0) for letter in letters)]
    pieces += [(MARK + word, -6.0) for word in ("The", "the", "quick", "fox")]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=MARK)
    tokenizer.decoder = decoders.Metaspace(replacement=MARK)
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in ("<unk>", "<s>", "</s>", *CONTROL)])
    return tokenizer


def words() -> Tokenizer:
    """No decoder at all."""
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "</s>": 1, "stop": 2, "the": 3, "fox": 4}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["[UNK]", "</s>"])
    return tokenizer


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "byte_level": byte_level,
    "llama2": lambda: sentencepiece(legacy=True),
    "mistral": lambda: sentencepiece(legacy=False),
    "gemma": lambda: sentencepiece(legacy=False, strips=False),
    "unigram": unigram,
    "words": words,
}


@pytest.fixture(scope="session")
def kinds() -> Mapping[str, bytes]:
    """`tokenizer.json` of each kind."""
    return {name: make().to_str().encode() for name, make in KINDS.items()}


@pytest.fixture(scope="session")
def files_of(kinds) -> Callable[..., TokenizerFiles]:
    """A model's files: its kind of tokenizer, and settings by file name, `.json` left out."""

    def make(kind: str, **settings: Mapping[str, object]) -> TokenizerFiles:
        written = {f"{name}.json": json.dumps(value).encode() for name, value in settings.items()}
        return TokenizerFiles({"tokenizer.json": kinds[kind]} | written)

    return make
