"""Whether a DFlash drafter was made for the target at hand."""

from services.drafter.borrowed import Borrowed
from services.drafter.checkpoints.recipe import Recipe
from services.errors import BadCheckpoint


def check_fit(recipe: Recipe, target: Borrowed, embedding_rows: int) -> None:
    """Raises BadCheckpoint with both numbers. `embedding_rows`: of the embedding that the drafter will use."""
    body = recipe.body
    if body.hidden_size != target.hidden_size:
        raise BadCheckpoint(f"hidden_size is {body.hidden_size}, the target's is {target.hidden_size}")
    if recipe.target_layers not in (None, target.layers):
        raise BadCheckpoint(f"it was made for a target of {recipe.target_layers} layers; this one has {target.layers}")
    if max(recipe.taps) >= target.layers:
        raise BadCheckpoint(f"it taps the output of layer {max(recipe.taps)}; the target's last is {target.layers - 1}")
    if recipe.mask_id >= embedding_rows:
        raise BadCheckpoint(f"mask_token_id is {recipe.mask_id}; the embedding has {embedding_rows} rows")
    if body.vocab_size is not None and body.vocab_size < target.vocab_size:
        raise BadCheckpoint(f"vocab_size is {body.vocab_size}; the target's tokenizer has {target.vocab_size} ids")
