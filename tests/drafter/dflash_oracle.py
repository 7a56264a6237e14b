"""Small random DFlash drafters as z-lab's own package makes them, and the folders that hold the same weights."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from dflash.model import DFlash2DraftModel, DFlashDraftModel
from safetensors.torch import save_file
from torch import nn
from transformers import Qwen3Config, Qwen3ForCausalLM

from services.drafter.borrowed import Borrowed
from services.drafter.checkpoints.formats import read_recipe
from services.drafter.checkpoints.tensors import Plan
from services.drafter.dflash import MODES, DFlashDrafter
from services.drafter.interface import Ask, Feed, Opening
from services.drafter.models.dflash import DFlashBody
from services.engine.weights.checkpoint import Checkpoint
from services.wire.codec import TensorBytes

VOCAB, HIDDEN, TARGET_LAYERS = 101, 64, 8
BODY = {
    "hidden_size": HIDDEN,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,  # heads together are wider than the stream
    "vocab_size": VOCAB,
    "rms_norm_eps": 1e-5,
    "rope_theta": 3e4,
    "max_position_embeddings": 1000,
    "tie_word_embeddings": False,
}
SPECIAL = {"block_size": 6, "mask_token_id": 99, "target_layer_ids": [1, 3, 6]}
SECOND = {"conv_kernel_size": 2, "conv_group_size": 16, "selector_rank": 12, "selector_top_k": 5}


def noise(module, seed=0):
    """Every parameter is noise, norms and biases too, so that none can be forgotten unnoticed."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            values = torch.randn(parameter.shape, generator=generator)
            if "norm" in name:
                values = 1 + 0.3 * values
            elif "base_kernel" in name or "bias" in name:
                values = 0.5 * values
            elif "codebook" not in name:
                values = values * (0.5 if "kernel_projection" in name else 1.5) / parameter.shape[-1] ** 0.5
            parameter.copy_(values)
    return module.eval()


@dataclass
class Tiny:
    """An oracle and the target's matrices that it borrows."""

    model: nn.Module
    embedding_VH: torch.Tensor
    head: nn.Linear
    version: int
    special: dict

    @property
    def block_size(self):
        return self.special["block_size"]

    def scale(self):
        return self.special.get("input_embedding_scale", 1.0)

    def block(self, anchor):
        ids = [anchor] + [self.special["mask_token_id"]] * (self.block_size - 1)
        return self.embedding_VH[ids] * self.scale()

    @torch.inference_mode()
    def hidden(self, taps_PKH, anchor):
        """After the final norm [B, H], all of the context at once."""
        positions = torch.arange(len(taps_PKH) + self.block_size)[None]
        noise_embedding = self.block(anchor)[None]
        return self.model(
            target_hidden=taps_PKH.flatten(1)[None], noise_embedding=noise_embedding, position_ids=positions
        )[0]

    @torch.inference_mode()
    def drafts(self, taps_PKH, anchor):
        """The greedy draft, and the logits it comes from."""
        hidden = self.hidden(taps_PKH, anchor)[None, 1:]
        logits = self.model.compute_logits(hidden, self.head)
        if self.version == 1:
            return logits[0].argmax(-1).tolist(), logits[0]
        ids, _, _ = self.model.propose(hidden, torch.tensor([anchor]), self.head, 0.0)
        return ids[0].tolist(), logits[0]


def tiny(version, *, seed=0, windows=None, is_causal=None, special=None, target=None, **body):
    """`windows`: the window of each layer, or None for full ones. `target`: a transformers model to borrow from."""
    if windows is not None:
        window = next((each for each in windows if each), None)
        body |= {
            "layer_types": ["full_attention" if each is None else "sliding_attention" for each in windows],
            "sliding_window": window,
            "use_sliding_window": True,
            "num_hidden_layers": len(windows),
        }
    special = SPECIAL | (SECOND if version == 2 else {}) | (special or {})
    config = Qwen3Config(**BODY | body)
    config.dflash_config = special
    config.num_target_layers = TARGET_LAYERS
    if is_causal is not None:
        config.is_causal = is_causal
    model = noise((DFlashDraftModel, DFlash2DraftModel)[version - 1](config), seed)
    if target is None:
        head = noise(nn.Linear(HIDDEN, VOCAB, bias=False), seed + 1)
        embedding = torch.randn(VOCAB, HIDDEN, generator=torch.Generator().manual_seed(seed + 2))
    else:
        head, embedding = target.lm_head, target.get_input_embeddings().weight.detach()
    return Tiny(model, embedding, head, version, special)


def tensors(oracle):
    """Under the published names: codebooks without `.weight`."""
    return {name.replace("codebook.weight", "codebook"): value for name, value in oracle.model.state_dict().items()}


def config(oracle):
    return oracle.model.config.to_dict() | {"architectures": [type(oracle.model).__name__]}


def write(folder: Path, values, named):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(values))
    save_file({name: value.contiguous().clone() for name, value in named.items()}, folder / "model.safetensors")
    return folder


def write_drafter(folder: Path, oracle, **changed):
    return write(folder, config(oracle) | changed, tensors(oracle))


def write_target(folder: Path, oracle, **changed):
    """Of a target's folder only what a drafter reads."""
    rows, size = oracle.embedding_VH.shape
    values = {"model_type": "llama", "vocab_size": rows, "hidden_size": size, "num_hidden_layers": TARGET_LAYERS}
    named = {"model.embed_tokens.weight": oracle.embedding_VH, "lm_head.weight": oracle.head.weight.detach()}
    return write(folder, values | changed, named)


def borrow(folder: Path, *, vocab_size=VOCAB, dtype=torch.float32, draft_vocab=None):
    return Borrowed.read(folder, dtype=dtype, vocab_size=vocab_size, draft_vocab=draft_vocab)


def load(folder: Path, oracle, *, draws="argmax", **borrowed):
    """The oracle's drafter, through files."""
    target = borrow(write_target(folder / "target", oracle), **borrowed)
    mode = MODES[oracle.version]
    return DFlashDrafter.load(mode, write_drafter(folder / mode, oracle), target, draws=draws)


def body(folder: Path, oracle):
    """The layers alone, through files."""
    recipe = read_recipe(write_drafter(folder / "drafter", oracle))
    checkpoint = Checkpoint.open(folder / "drafter")
    return DFlashBody(Plan.of(recipe, checkpoint), checkpoint, torch.float32)


def random_taps(count, taps=3, seed=7):
    return torch.randn(count, taps, HIDDEN, generator=torch.Generator().manual_seed(seed))


def opened(drafter, *, first_id=0, layers=None, **sampling):
    """A context that is fed with exactly the drafter's own layers, or with `layers`."""
    layers = drafter.description.tap_layers if layers is None else layers
    return drafter.open(Opening(first_id=first_id, max_positions=10_000, tap_layers=layers, **sampling))


def feed(drafter, context, taps_PKH, ids):
    data = taps_PKH.contiguous().view(torch.uint8).numpy().tobytes()
    name = {torch.float32: "fp32", torch.bfloat16: "bf16"}[taps_PKH.dtype]
    drafter.absorb(context, Feed(context.fed, ids, TensorBytes(name, tuple(taps_PKH.shape), data)))


def feed_in_pieces(drafter, context, taps_PKH, anchor, sizes):
    """Ids before the anchor are any."""
    done = 0
    for size in sizes:
        ids = [1] * size
        if done + size == len(taps_PKH):
            ids[-1] = anchor
        feed(drafter, context, taps_PKH[done : done + size], ids)
        done += size
    assert done == len(taps_PKH)


def ask(drafter, *contexts, count=None):
    count = drafter.description.max_draft_tokens if count is None else count
    return drafter.draft([Ask(context, count) for context in contexts])


def tiny_target(seed=3, **changed):
    values = BODY | {"num_hidden_layers": TARGET_LAYERS, "layer_types": None, **changed}
    return noise(Qwen3ForCausalLM(Qwen3Config(**values)), seed)
