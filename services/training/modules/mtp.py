"""A multi-token-prediction module of one layer, unrolled as it is when it drafts.

Pass 0 pairs the target's state at t with the id of t + 1 and predicts t + 2, for every t at once. Pass p > 0 goes on
from what pass p - 1 made of row t, with the true id of t + p + 1: its row has position t + p, and sees the rows of pass
0 up to t, which were made of the target's states, and behind them the rows that passes 1 .. p made for this same t.

Shape key: S sequences, T rows of each, H hidden size, C query heads, N key heads, G query heads of a key head, D head
size.
"""

import torch
from torch import Tensor, nn

from services.training.modules.layers import Attention, Mlp, RmsNorm, Rotary, Sizes


class MtpLayer(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.input_layernorm = RmsNorm(sizes.hidden, sizes.eps)
        self.self_attn = Attention(sizes)
        self.post_attention_layernorm = RmsNorm(sizes.hidden, sizes.eps)
        self.mlp = Mlp(sizes)


class Mtp(nn.Module):
    """Its parameters are the `mtp.*` tensors of a file, without that prefix."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.fc = nn.Linear(2 * sizes.hidden, sizes.hidden, bias=False)
        self.pre_fc_norm_embedding = RmsNorm(sizes.hidden, sizes.eps)
        self.pre_fc_norm_hidden = RmsNorm(sizes.hidden, sizes.eps)
        self.layers = nn.ModuleList([MtpLayer(sizes)])
        self.norm = RmsNorm(sizes.hidden, sizes.eps)
        self._rotary = Rotary(sizes.rope, sizes.heads.dim)

    def forward(self, hidden_STH: Tensor, embedded_STH: Tensor, passes: int) -> list[Tensor]:
        """`hidden_STH` are the target's states of positions 0 .. T - 1, `embedded_STH` the embeddings of the ids of
        1 .. T. For each pass p its states [S, T - p, H]; row t predicts the id of t + p + 2."""
        count = hidden_STH.shape[1]
        keys: list[Tensor] = []
        values: list[Tensor] = []
        states: list[Tensor] = []
        state_STH = hidden_STH
        for step in range(passes):
            rows = count - step
            positions_1T = torch.arange(step, count, device=hidden_STH.device)[None]
            halves = self.pre_fc_norm_embedding(embedded_STH[:, step:]), self.pre_fc_norm_hidden(state_STH[:, :rows])
            x_STH = self.fc(torch.cat(halves, -1))
            state_STH = self._layer(x_STH, positions_1T, keys, values)
            states.append(state_STH)
        return states

    def _layer(self, x_STH: Tensor, positions_1T: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
        layer = self.layers[0]
        assert isinstance(layer, MtpLayer)
        attention, u_STH = layer.self_attn, layer.input_layernorm(x_STH)
        q_STCD = attention.queries(u_STH, positions_1T, self._rotary)
        keys.append(attention.keys(u_STH, positions_1T, self._rotary))
        values.append(attention.values(u_STH))
        x_STH = x_STH + attention.o_proj(_attend(q_STCD, keys, values))
        x_STH = x_STH + layer.mlp(layer.post_attention_layernorm(x_STH))
        out_STH: Tensor = self.norm(x_STH)
        return out_STH


def _attend(q_STCD: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
    """`keys[p]` and `values[p]` [S, T - p, N, D] are those of pass p; the rows are the last one's."""
    rows, heads, dim = q_STCD.shape[1], keys[0].shape[2], q_STCD.shape[3]
    q_SNGTD = torch.unflatten(q_STCD, 2, (heads, -1)).permute(0, 2, 3, 1, 4)
    first_SN1DT = keys[0][:, :rows].permute(0, 2, 3, 1)[:, :, None]
    later = torch.ones(rows, rows, dtype=torch.bool, device=q_STCD.device).triu(1)
    scores = [(q_SNGTD @ first_SN1DT).masked_fill(later, -torch.inf)]
    for k_STND in keys[1:]:
        own_SN1TD = k_STND[:, :rows].transpose(1, 2)[:, :, None]
        scores.append((q_SNGTD * own_SN1TD).sum(-1, keepdim=True))
    weights = (torch.cat(scores, -1).float() * dim**-0.5).softmax(-1).to(q_STCD.dtype)
    out_SNGTD = weights[..., :rows] @ values[0][:, :rows].transpose(1, 2)[:, :, None]
    for index, v_STND in enumerate(values[1:]):
        own_SN1TD = v_STND[:, :rows].transpose(1, 2)[:, :, None]
        out_SNGTD = out_SNGTD + weights[..., rows + index, None] * own_SN1TD
    out_STX: Tensor = out_SNGTD.permute(0, 3, 1, 2, 4).flatten(2)
    return out_STX
