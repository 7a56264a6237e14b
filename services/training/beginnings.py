"""What a drafter knows before it is trained: the target's last layers, or what a drafter learnt before."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from services.engine.weights.checkpoint import Checkpoint
from services.engine.weights.config import Keys
from services.errors import BadConfig
from services.training import recipes
from services.training.modules.dflash import DFlash
from services.training.modules.mtp import Mtp

FINAL_NORM = "norm.weight"
LAYER = re.compile(r"layers\.(\d+)\.(.+)")
SECOND = re.compile(r"candidate_selector\.|layers\.\d+\.(attention|mlp)_conv\.")
FREE = ("architectures", "dflash_config", "block_size", "conv_kernel_size", "conv_group_size", "selector_rank")
"""Keys of config.json that may differ: what they say of is in no tensor, or in one whose shape is checked."""


@torch.no_grad()
def from_target(model: nn.Module, target: Checkpoint, layers: int, seed: int) -> None:
    """Draw every weight from `seed`, then take the target's last layers and final norm where shapes fit.

    The projections before the layers begin as means of what they read. The final norm begins at half of the target's:
    as sure as the target, a drafter that knows nothing yet would be wrong at twice the loss."""
    dice = torch.Generator().manual_seed(seed)
    count = len(model.layers) if isinstance(model, Mtp | DFlash) else 0
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1 and "codebook" not in name and "kernel" not in name:
            parameter.normal_(0.0, 0.02, generator=dice)
        elif "predecessor_codebook" in name:
            parameter.normal_(0.0, 1.0, generator=dice)
        if (source := _source(name, layers - count)) in target:
            taken = target.read(source, torch.float32)
            if taken.shape == parameter.shape:
                parameter.copy_(taken / 2 if name == FINAL_NORM else taken)
    projection = model.fc
    assert isinstance(projection, nn.Linear)
    parts = projection.in_features // projection.out_features
    for part in torch.split(projection.weight, projection.out_features, 1):
        part += torch.eye(projection.out_features) / parts
    if isinstance(model, DFlash):  # context features take the place of what a layer's first norm gives
        first = model.layers[0]
        model.hidden_norm.weight.copy_(first.get_parameter("input_layernorm.weight"))


def _source(name: str, offset: int) -> str:
    """The target's name for a parameter of the drafter."""
    if name == FINAL_NORM:
        return "model.norm.weight"
    if match := LAYER.fullmatch(name):
        return f"model.layers.{int(match[1]) + offset}.{match[2]}"
    return ""


@torch.no_grad()
def from_drafter(model: nn.Module, config: Mapping[str, Any], folder: Path) -> None:
    """Take the weights of a drafter in the published format that was made for the same target, with the same taps.

    A DFlash2 drafter may begin with a DFlash one: what it adds begins as nothing at all. Raises BadConfig naming the
    key of config.json that differs, and BadCheckpoint for tensors that do not fit."""
    found = Keys.read(folder / "config.json")
    for ours, theirs in ((config, found), (config.get("dflash_config", {}), found.table("dflash_config"))):
        for key in [key for key in ours if key not in FREE and key in theirs]:
            if theirs.raw(key) != ours[key]:
                raise BadConfig(f"begin-with: {folder} has {key} {theirs.raw(key)}, and it has to be {ours[key]}")
    checkpoint = Checkpoint.open(folder)
    own = recipes.tensors(model)
    first = not any(SECOND.match(name) and name in checkpoint for name in own)
    taken = {name: each for name, each in own.items() if not (first and SECOND.match(name))}
    checkpoint.check({name: tuple(each.shape) for name, each in taken.items()}, lambda name: False)
    for name, tensor in taken.items():
        tensor.copy_(checkpoint.read(name, torch.float32))
