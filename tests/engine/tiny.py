"""Small random checkpoints of each family, written by transformers, and ways to run an engine on them."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from services.engine.batch import Block, Forward
from services.engine.cache.slots import Slot
from services.engine.engine import Engine

CONFIG = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 101,
    "max_position_embeddings": 700,
    "rms_norm_eps": 1e-5,
}
FAMILIES = {"llama": (LlamaConfig, LlamaForCausalLM, {}), "qwen3": (Qwen3Config, Qwen3ForCausalLM, {"head_dim": 24})}


def write(
    folder: Path, *, family: str = "llama", shards: str = "5GB", dtype: torch.dtype = torch.float32, **config
) -> PreTrainedModel:
    """Every parameter is noise, norms and biases too, so that none can be forgotten unnoticed."""
    generator = torch.Generator().manual_seed(5)
    config_class, model_class, own = FAMILIES[family]
    oracle = model_class(config_class(**CONFIG | own | config)).eval()
    with torch.no_grad():
        for name, parameter in oracle.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.3 * noise if "norm" in name else noise * 1.5 / parameter.shape[-1] ** 0.5)
    oracle.to(dtype).save_pretrained(folder, max_shard_size=shards)
    return oracle


def edit_config(folder: Path, *, drop: Sequence[str] = (), **values) -> None:
    path = folder / "config.json"
    config = {key: value for key, value in json.loads(path.read_text()).items() if key not in drop}
    path.write_text(json.dumps(config | values))


def tokens(count: int, vocab_size: int = CONFIG["vocab_size"], seed: int = 0) -> list[int]:
    return torch.randint(vocab_size, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def feed(engine: Engine, slot: Slot, ids: Sequence[int], **asked) -> Forward:
    """One forward of one sequence, all rows wanted and kept."""
    result = engine.forward([Block(slot=slot, ids=ids, wanted=len(ids))], **asked)
    slot.commit(len(ids))
    return result


def greedy(engine: Engine, prompt: Sequence[int], count: int, stop: frozenset[int] = frozenset()) -> list[int]:
    """The likeliest tokens, one at a time."""
    slot = engine.open(len(prompt) + count)
    rows_RV = feed(engine, slot, prompt).logits_RV
    ids = [int(rows_RV[-1].argmax())]
    while len(ids) < count and ids[-1] not in stop:
        ids.append(int(feed(engine, slot, ids[-1:]).logits_RV[-1].argmax()))
    engine.close(slot)
    return ids
