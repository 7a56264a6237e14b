"""DFlash and DFlash2 (arXiv 2602.06036), many blocks of many sequences in one pass.

A block is an anchor and masks behind it. Its rows see the context features of the positions before the anchor, and each
other. Blocks of one sequence share its context, and know nothing of each other.

Shape key: S sequences, P positions, X taps side by side, H hidden size = G groups x W channels, A blocks of each
sequence, B rows of a block, T = A * B rows, J = B - 1 drafts of a block, C candidates, R rank, V ids, Y taps of a
convolution, N key heads, D head size.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from services.training.modules.layers import Attention, Mlp, RmsNorm, Rotary, Sizes, attend

Sublayer = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Second:
    """What DFlash2 adds: convolutions, and a selector over the likeliest ids of each row."""

    conv_taps: int
    conv_group: int
    rank: int
    candidates: int
    vocab_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """`taps` of the target's layers, `layers` of the drafter's own."""

    sizes: Sizes
    layers: int
    taps: int
    block_size: int
    second: Second | None = None


class Conv(nn.Module):
    """Grouped dynamic causal convolution around a sublayer; it begins as nothing at all."""

    def __init__(self, hidden: int, second: Second) -> None:
        super().__init__()
        self._shape = (2, second.conv_taps, hidden // second.conv_group)
        self._group = second.conv_group
        self.base_kernel = nn.Parameter(torch.zeros(2, second.conv_taps, hidden))
        self.kernel_projection = nn.Linear(hidden, 2 * second.conv_taps * hidden // second.conv_group, bias=False)
        with torch.no_grad():
            self.base_kernel[:, 0] = 1
            self.kernel_projection.weight.zero_()

    def forward(self, x_STH: Tensor, sublayer: Sublayer, size: int) -> Tensor:
        kernels = self.kernel_projection(x_STH).unflatten(-1, self._shape)[..., None]
        kernels = kernels + torch.unflatten(self.base_kernel, -1, (-1, self._group)).to(kernels.dtype)
        before_STYGW, after_STYGW = kernels.unbind(2)
        return self._convolve(sublayer(self._convolve(x_STH, before_STYGW, size)), after_STYGW, size)

    def _convolve(self, x_STH: Tensor, kernel_STYGW: Tensor, size: int) -> Tensor:
        x_SABGW = torch.unflatten(torch.unflatten(x_STH, -1, (-1, self._group)), 1, (-1, size))
        kernel_SABYGW = torch.unflatten(kernel_STYGW, 1, (-1, size))
        y_SABGW = kernel_SABYGW[:, :, :, 0] * x_SABGW
        for tap in range(1, self._shape[1]):
            shifted = nn.functional.pad(x_SABGW[:, :, :-tap], (0, 0, 0, 0, tap, 0))
            y_SABGW = y_SABGW + kernel_SABYGW[:, :, :, tap] * shifted
        return y_SABGW.flatten(3).flatten(1, 2)


def _bare(x_STH: Tensor, sublayer: Sublayer, size: int) -> Tensor:
    return sublayer(x_STH)


class DFlashLayer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        sizes = shape.sizes
        self.input_layernorm = RmsNorm(sizes.hidden, sizes.eps)
        self.self_attn = Attention(sizes)
        self.post_attention_layernorm = RmsNorm(sizes.hidden, sizes.eps)
        self.mlp = Mlp(sizes)
        if shape.second:
            self.attention_conv = Conv(sizes.hidden, shape.second)
            self.mlp_conv = Conv(sizes.hidden, shape.second)
        self._size = shape.block_size
        self._second = shape.second is not None

    def forward(
        self, x_STH: Tensor, feature_SPH: Tensor, positions_ST: Tensor, seen_STK: Tensor, rotary: Rotary
    ) -> Tensor:
        """`seen_STK`: of the P positions of the context, and then of the T rows, those that each row sees."""
        attention = self.self_attn
        context_1P = torch.arange(feature_SPH.shape[1], device=feature_SPH.device)[None]
        past_k = attention.keys(feature_SPH, context_1P, rotary)
        past_v = attention.values(feature_SPH)

        def attended(u_STH: Tensor) -> Tensor:
            q_STCD = attention.queries(u_STH, positions_ST, rotary)
            k_SKND = torch.cat([past_k, attention.keys(u_STH, positions_ST, rotary)], 1)
            v_SKND = torch.cat([past_v, attention.values(u_STH)], 1)
            out_STH: Tensor = attention.o_proj(attend(q_STCD, k_SKND, v_SKND, seen_STK))
            return out_STH

        around_attention, around_mlp = (self.attention_conv, self.mlp_conv) if self._second else (_bare, _bare)
        x_STH = x_STH + around_attention(self.input_layernorm(x_STH), attended, self._size)
        out_STH: Tensor = x_STH + around_mlp(self.post_attention_layernorm(x_STH), self.mlp, self._size)
        return out_STH


class Selector(nn.Module):
    """Bigram scores of candidates; they begin as zero."""

    def __init__(self, hidden: int, second: Second) -> None:
        super().__init__()
        self.count = second.candidates
        self.hidden_projection = nn.Linear(hidden, second.rank, bias=False)
        self.predecessor_codebook = nn.Parameter(torch.randn(second.vocab_size, second.rank))
        self.successor_codebook = nn.Parameter(torch.zeros(second.vocab_size, second.rank))

    def forward(self, unary_XC: Tensor, ids_XC: Tensor, hidden_XH: Tensor, before_X: Tensor) -> Tensor:
        """Scores [X, C] of candidates `ids_XC` behind the ids `before_X`."""
        weighted_XR = self.predecessor_codebook[before_X] * self.hidden_projection(hidden_XH).float()
        bigram_XC: Tensor = (self.successor_codebook[ids_XC] @ weighted_XR[..., None])[..., 0]
        return unary_XC + bigram_XC


class DFlash(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        sizes = shape.sizes
        self.fc = nn.Linear(shape.taps * sizes.hidden, sizes.hidden, bias=False)
        self.hidden_norm = RmsNorm(sizes.hidden, sizes.eps)
        self.layers = nn.ModuleList([DFlashLayer(shape) for _ in range(shape.layers)])
        self.norm = RmsNorm(sizes.hidden, sizes.eps)
        if shape.second:
            self.candidate_selector = Selector(sizes.hidden, shape.second)
        self._rotary = Rotary(sizes.rope, sizes.heads.dim)
        self._size = shape.block_size

    def forward(self, taps_SPX: Tensor, blocks_SABH: Tensor, anchors_SA: Tensor) -> Tensor:
        """States [S, A, B, H] behind embedded blocks whose anchors have positions `anchors_SA`, all above 0."""
        feature_SPH = self.hidden_norm(self.fc(taps_SPX))
        positions_ST, seen_STK = self.visible(anchors_SA, taps_SPX.shape[1])
        x_STH = blocks_SABH.flatten(1, 2)
        for layer in self.layers:
            x_STH = layer(x_STH, feature_SPH, positions_ST, seen_STK, self._rotary)
        out_SABH: Tensor = self.norm(x_STH).unflatten(1, (-1, self._size))
        return out_SABH

    def visible(self, anchors_SA: Tensor, context: int) -> tuple[Tensor, Tensor]:
        """The rows' positions [S, T], and which of `context` positions and T rows each sees [S, T, P + T]."""
        (sequences, blocks), size, device = anchors_SA.shape, self._size, anchors_SA.device
        positions_ST = (anchors_SA[..., None] + torch.arange(size, device=device)).flatten(1)
        before_SAP = torch.arange(context, device=device) < anchors_SA[..., None]
        before_STP = before_SAP.repeat_interleave(size, 1)
        block_T = torch.arange(blocks, device=device).repeat_interleave(size)
        same_STT = (block_T[:, None] == block_T).expand(sequences, -1, -1)
        return positions_ST, torch.cat([before_STP, same_STT], 2)
