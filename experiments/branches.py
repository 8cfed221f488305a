"""The residual branches of a block, x_BTD -> y_BTD: attention, cross-attention, feed-forward."""

from collections.abc import Callable
from functools import partial
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.config import ModelConfig, NormConfig
from experiments.gauge import Gauge, attention_statistics, mean_square
from experiments.norms import qk_norms
from experiments.placements.base import Kind

# Hendrycks and Gimpel 2016 (arXiv:1606.08415): exact GELU and its tanh approximation; SiLU: the same, section 2.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}
FEED_FORWARDS = (*ACTIVATIONS, "swiglu")


class Rotary(nn.Module):
    """Rotary position embedding, half-split: feature i turns with i + K/2 (Su et al. 2021, arXiv:2104.09864, eq. 34).

    The angle of pair i at position t is t / base^(2i/K).
    """

    cos_TK: Tensor
    sin_TK: Tensor

    def __init__(self, context: int, head_width: int, base: float) -> None:
        super().__init__()
        frequency = base ** (-torch.arange(0, head_width, 2, dtype=torch.float64) / head_width)
        angle_TK = torch.outer(torch.arange(context, dtype=torch.float64), frequency).repeat(1, 2)
        self.register_buffer("cos_TK", angle_TK.cos(), persistent=False)  # in the floats of the model once it is on its device
        self.register_buffer("sin_TK", angle_TK.sin(), persistent=False)

    def forward(self, x_BHTK: Tensor) -> Tensor:
        T = x_BHTK.shape[-2]
        low, high = x_BHTK.chunk(2, -1)
        turned = x_BHTK * self.cos_TK[:T] + torch.cat([-high, low], -1) * self.sin_TK[:T]
        return turned.to(x_BHTK.dtype)


class Attention(nn.Module):
    """Causal multi-head self-attention (Vaswani et al. 2017, section 3.2), x_BTD -> y_BTD.

    With ``value_only`` there is no W_O (Xiong et al. 2020, section 3.2).
    """

    kind: ClassVar[Kind] = "attn"

    def __init__(self, model: ModelConfig, norm: NormConfig, context: int) -> None:
        super().__init__()
        D, self.n_head, self.dropout = model.width, model.n_head, model.dropout
        self.wq, self.wk, self.wv = (nn.Linear(D, D, bias=model.bias) for _ in range(3))
        self.norm_q, self.norm_k = qk_norms(norm, self.n_head, D // self.n_head, context)
        self.wo = nn.Identity() if model.value_only else nn.Linear(D, D, bias=model.bias)
        rope = model.positions == "rope"
        self.rotary = Rotary(context, D // self.n_head, model.rope_base) if rope else nn.Identity()
        self.norm_v: nn.Module = nn.Identity()  # sockets that a placement may fill
        self.norm_out: nn.Module = nn.Identity()
        self.drop = nn.Dropout(model.dropout)
        self.scores = Gauge(attention_statistics, size=2)
        self.output = Gauge(mean_square)

    def forward(self, x_BTD: Tensor) -> Tensor:
        q_BHTK = self.rotary(self.norm_q(split(self.wq(x_BTD), self.n_head)).transpose(1, 2))
        k_BHTK = self.rotary(self.norm_k(split(self.wk(x_BTD), self.n_head)).transpose(1, 2))
        v_BHTK = self.norm_v(split(self.wv(x_BTD), self.n_head)).transpose(1, 2)
        dropout = self.dropout if self.training else 0.0
        y_BHTK = F.scaled_dot_product_attention(self.scores(q_BHTK, k_BHTK), k_BHTK, v_BHTK, dropout_p=dropout, is_causal=True)
        y_BTD = y_BHTK.transpose(1, 2).flatten(2)
        return self.output(self.drop(self.wo(self.norm_out(y_BTD))))


class CrossAttention(nn.Module):
    """Multi-head attention from the stream to a fixed memory of M tokens (Vaswani et al. 2017, section 3.2.3), x_BTD -> y_BTD.

    The memory stands for a normalised encoder's output: Gaussian, of unit variance, two tokens of it with an expected cosine
    of ``memory_cosine``. experiments.init draws it; it is not trained.
    """

    kind: ClassVar[Kind] = "cross"
    memory_MD: Tensor

    def __init__(self, model: ModelConfig, norm: NormConfig) -> None:
        super().__init__()
        D, self.n_head, self.dropout, self.cosine = model.width, model.n_head, model.dropout, model.memory_cosine
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(D, D, bias=model.bias) for _ in range(4))
        self.norm_q, self.norm_k = qk_norms(norm, self.n_head, D // self.n_head, model.memory_tokens)
        self.norm_v: nn.Module = nn.Identity()  # sockets that a placement may fill
        self.norm_out: nn.Module = nn.Identity()
        self.drop = nn.Dropout(model.dropout)
        self.output = Gauge(mean_square)
        self.register_buffer("memory_MD", torch.zeros(model.memory_tokens, D))

    def forward(self, x_BTD: Tensor) -> Tensor:
        memory_BMD = self.memory_MD.expand(len(x_BTD), -1, -1)
        q_BHTK = self.norm_q(split(self.wq(x_BTD), self.n_head)).transpose(1, 2)
        k_BHMK = self.norm_k(split(self.wk(memory_BMD), self.n_head)).transpose(1, 2)
        v_BHMK = self.norm_v(split(self.wv(memory_BMD), self.n_head)).transpose(1, 2)
        dropout = self.dropout if self.training else 0.0
        y_BHTK = F.scaled_dot_product_attention(q_BHTK, k_BHMK, v_BHMK, dropout_p=dropout)
        return self.output(self.drop(self.wo(self.norm_out(y_BHTK.transpose(1, 2).flatten(2)))))


def split(x_BTD: Tensor, n_head: int) -> Tensor:
    """The features in heads, [B, T, H, K]."""
    return x_BTD.unflatten(-1, (n_head, -1))


class FeedForward(nn.Module):
    """w2(act(w1 x)), or SwiGLU w2(SiLU(wg x) * w1 x) (Shazeer 2020, arXiv:2002.05202, eq. 6), x_BTD -> y_BTD."""

    kind: ClassVar[Kind] = "ffn"

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        D, width = model.width, model.d_ff or feed_forward_width(model.width, model.ffn)
        self.wg = nn.Linear(D, width, bias=model.bias) if model.ffn == "swiglu" else None
        self.w1 = nn.Linear(D, width, bias=model.bias)
        self.w2 = nn.Linear(width, D, bias=model.bias)
        self.act = ACTIVATIONS.get(model.ffn, F.silu)
        self.norm_out: nn.Module = nn.Identity()  # socket that a placement may fill
        self.drop = nn.Dropout(model.dropout)
        self.output = Gauge(mean_square)

    def forward(self, x_BTD: Tensor) -> Tensor:
        h_BTF = self.act(self.w1(x_BTD)) if self.wg is None else self.act(self.wg(x_BTD)) * self.w1(x_BTD)
        return self.output(self.drop(self.w2(self.norm_out(h_BTF))))


BranchModule = Attention | CrossAttention | FeedForward
BRANCHES: dict[str, Callable[[ModelConfig, NormConfig, int], BranchModule]] = {
    "attn": Attention,
    "cross": lambda model, norm, _context: CrossAttention(model, norm),
    "ffn": lambda model, _norm, _context: FeedForward(model),
}


def feed_forward_width(width: int, ffn: str) -> int:
    """4 D, or for SwiGLU 8 D / 3 rounded down to a multiple of 64 (as it is where that would be 0)."""
    if ffn != "swiglu":
        return 4 * width
    exact = 8 * width // 3
    return exact // 64 * 64 or exact
