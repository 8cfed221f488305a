"""An independent evaluation of a variant's equation, in the floats of a model and with its weights.

Nothing here calls a forward pass of the project: norms and branches are written out from their papers' formulas, and what a
placement does is read from the ``equation`` of its file in conf/norm.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from law import LawError, require
from torch import Tensor, nn

from experiments.config import EquationConfig, ModelConfig, NormConfig
from experiments.formula import evaluate
from experiments.model import Transformer
from experiments.placements.base import Placement, Site, Stream

Streams = dict[str, Tensor]  # x, then the further ones in the equation's order
PARAMETERS = {"layernorm": {"weight", "bias"}, "rmsnorm": {"weight"}, "dyt": {"alpha", "weight", "bias"}, "none": set()}


def constants(equation: EquationConfig, site: Site) -> dict[str, Any]:
    """What the names of a formula stand for at a site, but for streams, branches and the class's own."""
    names: dict[str, Any] = {"N": site.depth, "l": site.layer + 1, "k": site.index + 1}
    names |= {kind: site.branch == kind for kind in ("attn", "cross", "ffn")}
    for name, text in equation.where.items():
        names[name] = evaluate(text, names)
    return names


def normed(module: nn.Module, norm: NormConfig, name: str, x: Tensor, last: int = 1) -> Tensor:
    """A norm of the configured kind over the last dimensions, with the gain and bias that the module holds."""
    kind = norm.kind
    held = {path.rpartition(".")[2]: value for path, value in module.named_parameters()}
    wanted = PARAMETERS[kind]
    if held.keys() not in (wanted, wanted - {"bias"}):
        raise LawError(
            f"{name} holds {sorted(held) or 'nothing'}, a {kind} has {sorted(wanted) or 'nothing'}; make it with make_norm"
        )
    dims = tuple(range(-last, 0))
    if kind == "layernorm":
        x = x - x.mean(dims, keepdim=True)
    if kind in {"layernorm", "rmsnorm"}:
        x = x / ((x * x).mean(dims, keepdim=True) + norm.eps).sqrt()
    if kind == "dyt":
        x = torch.tanh(held["alpha"] * x)
    return x * held.get("weight", 1.0) + held.get("bias", 0.0)


def linear(module: nn.Linear, x: Tensor) -> Tensor:
    y = torch.einsum("btd,ed->bte", x, module.weight)
    return y if module.bias is None else y + module.bias


ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "gelu": lambda x: x * (1 + torch.erf(x / math.sqrt(2))) / 2,
    "silu": lambda x: x / (1 + torch.exp(-x)),
    "relu": lambda x: x * (x > 0),
}


@dataclass(frozen=True)
class Reference:
    """The equation of a variant beside a model that was built from the same options."""

    model: Transformer
    options: ModelConfig
    norm: NormConfig

    @property
    def equation(self) -> EquationConfig:
        return self.norm.equation

    def sites(self) -> Iterator[tuple[Site, Placement, nn.Module]]:
        count = self.options.depth * len(self.options.branches)
        for index, (layer, join, branch) in enumerate(self.model.sites()):
            yield Site(self.options.width, layer, self.options.depth, branch.kind, index, count), join, branch

    def own(self, site: Site, join: Placement) -> dict[str, Any]:
        """Norms and learnt parameters of a join by the name of its attribute. Not buffers: constants stand in ``where``."""
        where = f"of layer {site.layer}, {site.branch},"
        norms = {name: partial(self.normed, module, f"{name} {where}") for name, module in join._modules.items()}
        return norms | dict(join.named_parameters(recurse=False))

    def normed(self, module: nn.Module, name: str, x: Tensor) -> Tensor:
        return normed(module, self.norm, name, x)

    def enter(self, x_BTD: Tensor, site: Site, join: Placement) -> Streams:
        """The streams before the first branch."""
        texts = {"x": "x"} | self.equation.enter
        require(set(texts) == {"x", *self.equation.streams}, f"enter must give a value to x {' '.join(self.equation.streams)}")
        names = constants(self.equation, site) | self.own(site, join) | {"x": x_BTD}
        return {name: evaluate(texts[name], names) for name in ("x", *self.equation.streams)}

    def after(self, streams: Streams, site: Site, join: Placement, branch: Callable[[Tensor], Tensor]) -> Streams:
        """The streams after a branch, each formula reading those before it."""
        names = constants(self.equation, site) | self.own(site, join) | streams | {"f": branch}
        return {name: evaluate(text, names) for name, text in {"x": self.equation.x, **self.equation.streams}.items()}

    def out(self, streams: Streams, site: Site, join: Placement) -> Tensor:
        """What the readout reads."""
        final = partial(self.normed, self.model.final_norm, "final_norm")
        names = constants(self.equation, site) | self.own(site, join) | streams | {"final": final}
        return evaluate(self.equation.out, names)

    def embedded(self, tokens_BT: Tensor) -> Tensor:
        x_BTD = self.model.wte.weight[tokens_BT]
        return x_BTD if self.model.wpe is None else x_BTD + self.model.wpe.weight[: tokens_BT.shape[1]]

    def points(self, tokens_BT: Tensor) -> list[Streams]:
        """The streams at the L + 1 points, each stream a tensor of its own."""
        x_BTD, sites = self.embedded(tokens_BT), list(self.sites())
        points, streams = [{"x": x_BTD}], self.enter(x_BTD, *sites[0][:2])
        for site, join, branch in sites:
            streams = self.after(streams, site, join, partial(self.branch, branch))
            if site.index % len(self.options.branches) == len(self.options.branches) - 1:
                streams = {name: value.view_as(value) for name, value in streams.items()}
                points.append(streams)
        return points

    def read(self, streams: Streams) -> Tensor:
        """Logits from the streams at the last point."""
        *_, (site, join, _) = self.sites()
        return torch.einsum("btd,vd->btv", self.out(streams, site, join), self.model.head.weight)

    def logits(self, tokens_BT: Tensor) -> Tensor:
        return self.read(self.points(tokens_BT)[-1])

    def branch(self, module: nn.Module, x_BTD: Tensor) -> Tensor:
        return self.attention(module, x_BTD) if module.kind == "attn" else self.feed_forward(module, x_BTD)

    def inside(self, module: nn.Module, socket: str, x: Tensor) -> Tensor:
        """The norm that a placement puts into a branch, where the equation says that it does."""
        name = {"values": "norm_v", "output": "norm_out"}[socket]
        return self.normed(getattr(module, name), name, x) if socket in self.equation.inside else x

    def feed_forward(self, module: nn.Module, x_BTD: Tensor) -> Tensor:
        """w2(act(w1 x)), or w2(SiLU(wg x) * w1 x)."""
        if self.options.ffn == "swiglu":
            h_BTF = ACTIVATIONS["silu"](linear(module.wg, x_BTD)) * linear(module.w1, x_BTD)
        else:
            h_BTF = ACTIVATIONS[self.options.ffn](linear(module.w1, x_BTD))
        return linear(module.w2, self.inside(module, "output", h_BTF))

    def attention(self, module: nn.Module, x_BTD: Tensor) -> Tensor:
        """softmax(q k / sqrt(K)) v over the tokens up to one's own, head by head."""
        H, (B, T, D) = self.options.n_head, x_BTD.shape
        q, k, v = (linear(w, x_BTD).reshape(B, T, H, D // H) for w in (module.wq, module.wk, module.wv))
        q, k, v = self.turned(self.query(module, q)), self.turned(self.key(module, k)), self.inside(module, "values", v)
        score = torch.einsum("bthk,bshk->bhts", q, k) / math.sqrt(D // H)
        allowed = torch.arange(T)[:, None] >= torch.arange(T)[None, :]
        score = score.masked_fill(~allowed, -math.inf)
        weight = torch.exp(score - score.amax(-1, keepdim=True).detach())
        mixed = torch.einsum("bhts,bshk->bthk", weight / weight.sum(-1, keepdim=True), v)
        return linear(module.wo, self.inside(module, "output", mixed.reshape(B, T, D)))

    def query(self, module: nn.Module, q_BTHK: Tensor) -> Tensor:
        if self.norm.qk == "l2":
            (scale,) = module.norm_q.parameters()
            return self.unit(q_BTHK) * scale * math.sqrt(q_BTHK.shape[-1])
        return self.qk_normed(module.norm_q, "norm_q", q_BTHK)

    def key(self, module: nn.Module, k_BTHK: Tensor) -> Tensor:
        return self.unit(k_BTHK) if self.norm.qk == "l2" else self.qk_normed(module.norm_k, "norm_k", k_BTHK)

    def qk_normed(self, module: nn.Module, name: str, x_BTHK: Tensor) -> Tensor:
        """Over each head, or over heads and features jointly."""
        last = {"head": 1, "projection": 2}[self.norm.qk_axis]
        shapes = {tuple(p.shape) for p in module.parameters()}
        require(shapes <= {tuple(x_BTHK.shape[-last:])}, f"{name} over each {self.norm.qk_axis} has a gain of shape {shapes}")
        return normed(module, replace(self.norm, kind=self.norm.qk), name, x_BTHK, last)

    def unit(self, x_BTHK: Tensor) -> Tensor:
        """x / ||x||, over each head or over the whole projection."""
        dims = {"head": (-1,), "projection": (-2, -1)}[self.norm.qk_axis]
        return x_BTHK / (x_BTHK * x_BTHK).sum(dims, keepdim=True).sqrt()

    def turned(self, x_BTHK: Tensor) -> Tensor:
        """Rotary positions: a factor exp(i t / base^(2j/K)) on the pair (j, j + K/2)."""
        if self.options.positions != "rope":
            return x_BTHK
        T, half = x_BTHK.shape[1], x_BTHK.shape[-1] // 2
        angle = torch.arange(T).double()[:, None] / self.options.rope_base ** (torch.arange(half).double() / half)
        factor = torch.complex(angle.cos(), angle.sin())[:, None]
        pair = torch.complex(x_BTHK[..., :half], x_BTHK[..., half:]) * factor
        return torch.cat([pair.real, pair.imag], -1)


def streams_of(equation: EquationConfig, stream: Stream) -> Streams:
    """What a class returned, by the equation's names."""
    values, names = stream if isinstance(stream, tuple) else (stream,), ("x", *equation.streams)
    require(len(values) == len(names), f"the class keeps {len(values)} streams, the equation {len(names)}: {' '.join(names)}")
    return dict(zip(names, values, strict=True))


def stream_of(streams: Streams) -> Stream:
    """What a class receives."""
    return tuple(streams.values()) if len(streams) > 1 else streams["x"]
