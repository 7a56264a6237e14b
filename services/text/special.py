"""Which tokens are special, and which of them end an answer, put together from the files that may say so."""

from collections.abc import Mapping

from services.errors import BadCheckpoint
from services.text.files import TokenizerFiles


def named(files: TokenizerFiles) -> dict[str, str]:
    """`bos_token`, `eos_token`, `image_token`, ... -> the token's text; names without a token are absent."""
    result: dict[str, str] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        config = files.json(name)
        extra = config.get("extra_special_tokens")
        for key, value in (config | (extra if isinstance(extra, dict) else {})).items():
            if key.endswith("_token") and (text := _content(value)):
                result[key] = text
    return result


def listed(files: TokenizerFiles) -> set[str]:
    """Special tokens that have no name of their own."""
    result: set[str] = set()
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        for key in ("additional_special_tokens", "extra_special_tokens"):
            entries = files.json(name).get(key)
            result |= {text for entry in entries if (text := _content(entry))} if isinstance(entries, list) else set()
    return result


def stop_ids(files: TokenizerFiles, vocabulary: Mapping[str, int]) -> frozenset[int]:
    """The generation settings' end tokens, else the model's, and always the tokenizer's."""
    config = files.json("config.json")
    text_config = config.get("text_config")
    for name, source in (
        ("generation_config.json", files.json("generation_config.json")),
        ("config.json", config),
        ("config.json: text_config", text_config if isinstance(text_config, dict) else {}),
    ):
        if ids := _ids(source.get("eos_token_id"), f"{name}: eos_token_id"):
            break
    eos = named(files).get("eos_token")
    return ids | {vocabulary[eos]} if eos is not None and eos in vocabulary else ids


def _ids(value: object, where: str) -> frozenset[int]:
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(id, int) and not isinstance(id, bool) and id >= 0 for id in ids):
        raise BadCheckpoint(f"{where} is neither a token id nor a list of them: {value!r}")
    return frozenset(ids)


def _content(value: object) -> str | None:
    """A token is written as its text, or as an object that holds it as `content`."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) and value else None
