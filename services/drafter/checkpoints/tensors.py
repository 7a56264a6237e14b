"""The tensors of a DFlash drafter: which names its file uses, and which shapes the recipe asks for.

Shape key: V rows of the codebooks, R rank of the selector.
"""

from dataclasses import dataclass
from typing import Self

from services.drafter.checkpoints.recipe import Recipe
from services.drafter.checkpoints.speculators import CHOSEN, EMBEDDING, HEAD, OFFSETS
from services.drafter.checkpoints.variants import refuse_tensor
from services.engine.weights.checkpoint import Checkpoint
from services.engine.weights.fused import Fused
from services.errors import BadCheckpoint

PREFIX = "model."
FINAL_NORM = "norm.weight"
ATTENTION_NORM = "input_layernorm.weight"
MLP_NORM = "post_attention_layernorm.weight"
QUERY_NORM, KEY_NORM = "self_attn.q_norm.weight", "self_attn.k_norm.weight"
ATTENTION_CONV, MLP_CONV = "attention_conv.", "mlp_conv."
BASE_KERNEL, KERNELS = "base_kernel", "kernel_projection"
SELECTOR = "candidate_selector."


@dataclass(frozen=True, slots=True)
class Plan:
    """Names in this file, with its prefix; the linears of a layer, under the layer's own prefix."""

    recipe: Recipe
    prefix: str
    codebook: str

    @classmethod
    def of(cls, recipe: Recipe, checkpoint: Checkpoint) -> Self:
        """Raises BadCheckpoint unless the checkpoint has exactly this drafter's tensors."""
        prefix = PREFIX if PREFIX + FINAL_NORM in checkpoint else ""
        # The reference's own module adds `.weight`, its published files do not have it.
        bare = f"{prefix}{SELECTOR}predecessor_codebook" in checkpoint
        plan = cls(recipe, prefix, "_codebook" if bare else "_codebook.weight")
        shapes = plan._shapes()
        loose = plan._own_vocabulary(checkpoint, shapes)
        checkpoint.check(shapes, ignored=lambda name: name in loose or refuse_tensor(name))
        return plan

    @property
    def fc(self) -> str:
        return self.prefix + ("encoder.fc" if self.recipe.encoder_names else "fc")

    @property
    def context_norm(self) -> str:
        return self.prefix + ("encoder.output_norm_enc" if self.recipe.encoder_names else "hidden_norm") + ".weight"

    @property
    def final_norm(self) -> str:
        return self.prefix + FINAL_NORM

    @property
    def predecessor(self) -> str:
        return f"{self.prefix}{SELECTOR}predecessor{self.codebook}"

    @property
    def successor(self) -> str:
        return f"{self.prefix}{SELECTOR}successor{self.codebook}"

    def layer(self, index: int) -> str:
        return f"{self.prefix}layers.{index}."

    @property
    def features(self) -> Fused:
        size = self.recipe.body.hidden_size
        return Fused(parts={self.fc: size}, width=len(self.recipe.taps) * size)

    @property
    def context(self) -> Fused:
        """Keys and values of all layers from one context feature."""
        body = self.recipe.body
        each = body.heads.kv * body.heads.dim
        names = [f"{self.layer(n)}self_attn.{kind}_proj" for n in range(body.layers) for kind in ("k", "v")]
        return Fused(parts=dict.fromkeys(names, each), width=body.hidden_size, bias=body.attention_bias)

    @property
    def qkv(self) -> Fused:
        body, heads = self.recipe.body, self.recipe.body.heads
        keys = heads.kv * heads.dim
        parts = {"self_attn.q_proj": heads.query * heads.dim, "self_attn.k_proj": keys, "self_attn.v_proj": keys}
        return Fused(parts=parts, width=body.hidden_size, bias=body.attention_bias)

    @property
    def out(self) -> Fused:
        body = self.recipe.body
        width = body.heads.query * body.heads.dim
        return Fused(parts={"self_attn.o_proj": body.hidden_size}, width=width, bias=body.attention_bias)

    @property
    def gate_up(self) -> Fused:
        body = self.recipe.body
        return Fused(parts={"mlp.gate_proj": body.mlp_size, "mlp.up_proj": body.mlp_size}, width=body.hidden_size)

    @property
    def down(self) -> Fused:
        body = self.recipe.body
        return Fused(parts={"mlp.down_proj": body.hidden_size}, width=body.mlp_size)

    @property
    def kernels(self) -> Fused:
        """Of a convolution: 2 sides x taps x groups."""
        assert self.recipe.conv is not None
        size, conv = self.recipe.body.hidden_size, self.recipe.conv
        return Fused(parts={KERNELS: 2 * conv.taps * size // conv.group}, width=size)

    @property
    def projection(self) -> Fused:
        assert self.recipe.selector is not None
        parts = {f"{self.prefix}{SELECTOR}hidden_projection": self.recipe.selector.rank}
        return Fused(parts=parts, width=self.recipe.body.hidden_size)

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        recipe, body = self.recipe, self.recipe.body
        size = body.hidden_size
        shapes: dict[str, tuple[int, ...]] = {self.context_norm: (size,), self.final_norm: (size,)}
        shapes |= self.features.tensors("")
        for index in range(body.layers):
            prefix = self.layer(index)
            shapes |= {prefix + norm: (size,) for norm in (ATTENTION_NORM, MLP_NORM)}
            shapes |= {prefix + norm: (body.heads.dim,) for norm in (QUERY_NORM, KEY_NORM)}
            for linear in (self.qkv, self.out, self.gate_up, self.down):
                shapes |= linear.tensors(prefix)
            for conv in (ATTENTION_CONV, MLP_CONV) if recipe.conv else ():
                shapes |= self.kernels.tensors(prefix + conv)
                shapes[f"{prefix}{conv}{BASE_KERNEL}"] = (2, recipe.conv.taps, size) if recipe.conv else ()
        if recipe.selector:
            codebook = (body.vocab_size or 0, recipe.selector.rank)
            shapes |= {self.predecessor: codebook, self.successor: codebook} | self.projection.tensors("")
        return shapes

    def _own_vocabulary(self, checkpoint: Checkpoint, shapes: dict[str, tuple[int, ...]]) -> set[str]:
        """Adds the head and embedding of a drafter that has its own; the names of its maps, which are no floats."""
        body, own = self.recipe.body, self.recipe.draft_vocab_size
        if self.recipe.may_embed and EMBEDDING in checkpoint:
            shapes[EMBEDDING] = (body.vocab_size or 0, body.hidden_size)
        if own is None:
            return set()
        shapes[HEAD] = (own, body.hidden_size)
        for name, shape in ((OFFSETS, (own,)), (CHOSEN, (body.vocab_size,))):
            if name not in checkpoint:
                if name == OFFSETS:
                    raise BadCheckpoint(f"it lacks {OFFSETS}, which tells the ids of the {own} rows of its head")
            elif checkpoint.form(name)[1] != shape:
                raise BadCheckpoint(f"{name} has shape {[*checkpoint.form(name)[1]]}, not {[*shape]}")
        return {OFFSETS, CHOSEN}
