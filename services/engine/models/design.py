"""A decoder of grouped attention with rotary positions and a gated MLP, as its config.json describes it: which tensors
it has, which operators, and how it is loaded. The families differ in their keys and in a few flags.

Shape key: H hidden size, N query and key heads, D head size, V vocabulary of the tokenizer, P positions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import torch

from services.engine.models.decoder import Decoder, Layer
from services.engine.models.rope import read_rope
from services.engine.ops.attention import Heads
from services.engine.ops.linear import Linear
from services.engine.ops.plan import Operator, Table
from services.engine.ops.pointwise import LANES, HeadNorm, Norm, SwiGlu
from services.engine.ops.rope import Rope
from services.engine.weights.checkpoint import Checkpoint
from services.engine.weights.config import Keys
from services.engine.weights.fused import Fused
from services.errors import BadCheckpoint

EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
HEAD = "lm_head.weight"
ATTENTION_NORM = "input_layernorm.weight"
MLP_NORM = "post_attention_layernorm.weight"
QUERY_NORM = "self_attn.q_norm.weight"
KEY_NORM = "self_attn.k_norm.weight"


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """`vocab_size` counts the checkpoint's rows, padded ones included. `head_norms`: each query and key head is
    normalised before it is rotated, queries and keys with a weight of their own."""

    hidden_size: int
    mlp_size: int
    layers: int
    heads: Heads
    vocab_size: int
    context: int
    eps: float
    rope: Rope
    tied: bool
    attention_bias: bool
    mlp_bias: bool = False
    head_norms: bool = False

    @classmethod
    def read(cls, keys: Keys, heads: Heads, *, mlp_bias: bool = False, head_norms: bool = False) -> Self:
        """The keys that all families have."""
        keys.one_of("hidden_act", ("silu",), "silu")
        if heads.query % heads.kv:
            raise keys.wrong("num_key_value_heads", f"a divisor of num_attention_heads, {heads.query}")
        if heads.dim % 2:
            raise keys.wrong("head_dim", "an even number")
        return cls(
            hidden_size=keys.integer("hidden_size"),
            mlp_size=keys.integer("intermediate_size"),
            layers=keys.integer("num_hidden_layers"),
            heads=heads,
            vocab_size=keys.integer("vocab_size"),
            context=keys.integer("max_position_embeddings"),
            eps=keys.number("rms_norm_eps"),
            rope=read_rope(keys),
            tied=keys.flag("tie_word_embeddings", False),
            attention_bias=keys.flag("attention_bias", False),
            mlp_bias=mlp_bias,
            head_norms=head_norms,
        )

    @property
    def qkv(self) -> Fused:
        queries, keys = self.heads.query * self.heads.dim, self.heads.kv * self.heads.dim
        parts = {"self_attn.q_proj": queries, "self_attn.k_proj": keys, "self_attn.v_proj": keys}
        return Fused(parts=parts, width=self.hidden_size, bias=self.attention_bias)

    @property
    def out(self) -> Fused:
        width = self.heads.query * self.heads.dim
        return Fused(parts={"self_attn.o_proj": self.hidden_size}, width=width, bias=self.attention_bias)

    @property
    def gate_up(self) -> Fused:
        parts = {"mlp.gate_proj": self.mlp_size, "mlp.up_proj": self.mlp_size}
        return Fused(parts=parts, width=self.hidden_size, bias=self.mlp_bias, rows_to=LANES)

    @property
    def down(self) -> Fused:
        parts = {"mlp.down_proj": self.hidden_size}
        return Fused(parts=parts, width=self.mlp_size, bias=self.mlp_bias, width_to=LANES)

    def head(self, vocab_size: int) -> Operator:
        return Operator("linear", self.hidden_size, vocab_size)

    @property
    def norm(self) -> Operator:
        return Operator("norm", self.hidden_size, self.hidden_size)

    @property
    def head_norm(self) -> Operator:
        return Operator("head_norm", (self.heads.query + self.heads.kv) * self.heads.dim, self.heads.dim)

    @property
    def swiglu(self) -> Operator:
        return Operator("swiglu", self.gate_up.operator.out, self.down.operator.width)

    def operators(self, vocab_size: int) -> list[Operator]:
        linears = [self.qkv, self.out, self.gate_up, self.down]
        norms = [self.norm, self.head_norm] if self.head_norms else [self.norm]
        return [*norms, self.swiglu, *(linear.operator for linear in linears), self.head(vocab_size)]

    def check(self, checkpoint: Checkpoint) -> None:
        """Raises BadCheckpoint unless the checkpoint has exactly this model's tensors."""
        vocabulary = (self.vocab_size, self.hidden_size)
        shapes: dict[str, tuple[int, ...]] = {EMBEDDING: vocabulary, FINAL_NORM: (self.hidden_size,)}
        # Some checkpoints store the head although it is the embedding.
        if not self.tied or HEAD in checkpoint:
            shapes[HEAD] = vocabulary
        for prefix in self._prefixes():
            shapes |= {prefix + norm: (self.hidden_size,) for norm in (ATTENTION_NORM, MLP_NORM)}
            if self.head_norms:
                shapes |= {prefix + norm: (self.heads.dim,) for norm in (QUERY_NORM, KEY_NORM)}
            for linear in (self.qkv, self.out, self.gate_up, self.down):
                shapes |= linear.tensors(prefix)
        # Frequencies that old files stored; they follow from the config.
        checkpoint.check(shapes, ignored=lambda name: name.endswith(".rotary_emb.inv_freq"))

    def load(
        self,
        checkpoint: Checkpoint,
        table: Table,
        *,
        dtype: torch.dtype,
        vocab_size: int,
        context: int,
        progress: Callable[[float], None],
    ) -> Decoder:
        embedding_VH = checkpoint.read(EMBEDDING, dtype)
        head_VH = checkpoint.read(HEAD, dtype) if HEAD in checkpoint else embedding_VH
        if self.tied and not torch.equal(head_VH, embedding_VH):
            raise BadCheckpoint(f"{HEAD} differs from {EMBEDDING}, and config.json says that they are tied")
        layers = []
        for prefix in self._prefixes():
            layers.append(self._layer(checkpoint, prefix, table, dtype))
            progress(len(layers) / self.layers)
        cos_P1D, sin_P1D = self.rope.tables(context, self.heads.dim, dtype)
        return Decoder(
            heads=self.heads,
            table=table,
            embedding_VH=embedding_VH[:vocab_size],
            layers=layers,
            norm=self._norm(checkpoint, FINAL_NORM, table, dtype),
            head=Linear(head_VH[:vocab_size], None, table[self.head(vocab_size)]),
            cos_P1D=cos_P1D[:context],
            sin_P1D=sin_P1D[:context],
        )

    def _prefixes(self) -> list[str]:
        return [f"model.layers.{layer}." for layer in range(self.layers)]

    def _layer(self, checkpoint: Checkpoint, prefix: str, table: Table, dtype: torch.dtype) -> Layer:
        return Layer(
            attention_norm=self._norm(checkpoint, prefix + ATTENTION_NORM, table, dtype),
            qkv=self.qkv.read(checkpoint, prefix, table, dtype),
            head_norm=self._head_norm(checkpoint, prefix, table, dtype) if self.head_norms else None,
            out=self.out.read(checkpoint, prefix, table, dtype),
            mlp_norm=self._norm(checkpoint, prefix + MLP_NORM, table, dtype),
            gate_up=self.gate_up.read(checkpoint, prefix, table, dtype),
            swiglu=SwiGlu(table[self.swiglu]),
            down=self.down.read(checkpoint, prefix, table, dtype),
        )

    def _norm(self, checkpoint: Checkpoint, name: str, table: Table, dtype: torch.dtype) -> Norm:
        return Norm(checkpoint.read(name, dtype), self.eps, table[self.norm])

    def _head_norm(self, checkpoint: Checkpoint, prefix: str, table: Table, dtype: torch.dtype) -> HeadNorm:
        query_D, key_D = checkpoint.read(prefix + QUERY_NORM, dtype), checkpoint.read(prefix + KEY_NORM, dtype)
        weight_ND = torch.cat([query_D.expand(self.heads.query, -1), key_D.expand(self.heads.kv, -1)])
        return HeadNorm(weight_ND, self.eps, table[self.head_norm])
