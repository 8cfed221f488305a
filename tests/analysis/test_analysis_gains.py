"""Laws of the branch gains: closed forms, random matrices, and the weights that experiments/init.py draws."""

from typing import Any

import numpy as np
import pytest
from scipy.special import expit, ndtr
from synthetic_store import Run

from analysis.meanfield.gains import CausalMean, Coherence, TypicalToken, block
from analysis.meanfield.weights import UncoveredError, weights
from analysis.theory import branch_gains


def config(init: str = "xavier", **override: Any) -> dict[str, Any]:
    """A run's config; the keys of `override` have __ for the dot."""
    keys = {key.replace("__", "."): value for key, value in override.items()}
    return Run(init=init, override=keys).config


def test_xavier_feed_forward_of_four_widths_has_the_known_gains() -> None:
    gain = branch_gains(config())["ffn"]
    assert (round(gain.backward, 3), round(gain.forward, 3)) == (0.250, 0.233)


@pytest.mark.parametrize("init", ["xavier", "gpt2", "torch"])
def test_a_relu_feed_forward_returns_as_much_as_it_adds(init: str) -> None:
    """Both gains are D F s1² s2² / 2: the moments are q/2 and 1/2."""
    gain = branch_gains(config(init, model__ffn="relu", model__bias=False))["ffn"]
    stds = {"xavier": (2 / 320) ** 0.5, "gpt2": 0.02}
    product = stds[init] ** 4 if init in stds else 1 / (3 * 64) / (3 * 256)
    assert (gain.forward, gain.backward) == pytest.approx([64 * 256 * product / 2] * 2, rel=1e-12)


def test_attention_over_one_token_is_a_linear_map() -> None:
    for init, expected in {"xavier": 1.0, "torch": 1 / 9, "gpt2": (64 * 0.02**2) ** 2}.items():
        gain = branch_gains(config(init, train__context=1, model__bias=False))["attn"]
        assert (gain.forward, gain.backward) == pytest.approx((expected, expected), rel=1e-12)
    value_only = branch_gains(config("torch", train__context=1, model__bias=False, model__value_only=True))["attn"]
    assert (value_only.forward, value_only.backward) == pytest.approx((1 / 3, 1 / 3), rel=1e-12)


def test_biases_of_torchs_default_act_as_one_more_feature() -> None:
    gain = branch_gains(config("torch", train__context=1))["attn"]
    value = 1 / 3 + 1 / (3 * 64)
    assert gain.forward == pytest.approx(value / 3 + 1 / (3 * 64), rel=1e-12)
    assert gain.backward == pytest.approx(1 / 9, rel=1e-12)


def test_causal_attention_keeps_a_harmonic_share_of_what_is_incoherent_and_all_of_what_is_coherent() -> None:
    harmonic = sum(1 / t for t in range(1, 65)) / 64
    incoherent, half, coherent = (
        branch_gains(config(), coherence=Coherence(rho, gamma))["attn"] for rho, gamma in ((0, 0), (0.5, 0.25), (1, 1))
    )
    assert (incoherent.forward, incoherent.backward) == pytest.approx((harmonic, harmonic), rel=1e-12)
    assert (half.forward, half.backward) == pytest.approx(((1 + harmonic) / 2, (1 + 3 * harmonic) / 4), rel=1e-12)
    assert (coherent.forward, coherent.backward) == pytest.approx((1, 1), rel=1e-12)


@pytest.mark.parametrize("rho", [0.0, 0.3, 1.0])
def test_a_typical_token_is_the_mean_over_tokens_of_the_causal_mean(rho: float) -> None:
    T, one = 7, np.ones((1, 1))
    R_TT = (1 - rho) * np.eye(T) + rho
    typical, causal = TypicalToken(T, Coherence(rho, 0.0)), CausalMean(T)
    assert typical.average(one).item() == pytest.approx(np.trace(causal.average(R_TT)) / T, rel=1e-12)
    assert typical.spread(one).item() == pytest.approx(np.trace(causal.spread(np.eye(T))) / T, rel=1e-12)
    coherent = causal.spread(np.ones((T, T)))
    assert coherent.sum() == pytest.approx(T**2, rel=1e-12)  # the sum over tokens of a gradient is kept
    assert np.trace(coherent) / T == pytest.approx(2 - sum(1 / t for t in range(1, T + 1)) / T, rel=1e-12)


def test_cross_attention_adds_the_variance_of_the_memorys_mean_and_returns_nothing() -> None:
    for cosine in (0.0, 0.4, 1.0):
        override = {"model__branches": ["attn", "cross", "ffn"], "model__memory_tokens": 16, "model__memory_cosine": cosine}
        gain = branch_gains(config(**override))["cross"]
        assert gain.forward == pytest.approx(1 / 16 + 15 / 16 * cosine, rel=1e-12)
        assert gain.backward == 0


@pytest.mark.parametrize(("ffn", "init"), [("swiglu", "xavier"), ("swiglu", "torch"), ("gelu", "torch"), ("silu", "gpt2")])
def test_feed_forward_gains_are_those_of_random_matrices(ffn: str, init: str) -> None:
    """Output variance, overlap of two tokens, and ||Jᵀg||² / ||g||², with J assembled from the matrices."""
    setup = config(init, model__ffn=ffn, model__width=48, init__std=0.12)
    w, branch = weights(setup), block(setup, CausalMean(2))[1]
    rng = np.random.default_rng(0)
    x_TD = rng.normal(size=(2, 48))
    x_TD[1] = 0.6 * x_TD[0] + 0.8 * x_TD[1]
    x_TD *= 48**0.5 / np.linalg.norm(x_TD, axis=1, keepdims=True)

    def hidden(u: np.ndarray, g: np.ndarray) -> np.ndarray:
        return g * expit(g) * u if ffn == "swiglu" else u * (ndtr(u) if ffn == "gelu" else expit(u))

    covariances, squares, e = [], [], 1e-5
    for _ in range(600):
        w1, wg, w2 = (
            w.std[n] * rng.normal(size=(w.width, w.hidden) if n == "w2" else (w.hidden, w.width)) for n in ("w1", "wg", "w2")
        )
        b1, bg, b2 = (w.bias[n] * rng.normal(size=size) for n, size in (("w1", w.hidden), ("wg", w.hidden), ("w2", w.width)))
        u_TF, g_TF = x_TD @ w1.T + b1, x_TD @ wg.T + bg
        y_TD = hidden(u_TF, g_TF) @ w2.T + b2
        covariances.append(y_TD @ y_TD.T / 48)
        du_F, dg_F = ((hidden(u_TF + a, g_TF + b) - hidden(u_TF - a, g_TF - b))[0] / (2 * e) for a, b in ((e, 0), (0, e)))
        squares.append(np.sum((w2 @ (du_F[:, None] * w1 + dg_F[:, None] * wg)) ** 2) / 48)
    R_TT = x_TD @ x_TD.T / 48
    np.testing.assert_allclose(np.mean(covariances, axis=0), branch.covariance(R_TT), rtol=0.06)
    assert np.mean(squares) == pytest.approx(branch.pullback(R_TT, np.eye(2))[0, 0], rel=0.05)


@pytest.mark.parametrize("init", ["xavier", "gpt2", "gpt2_scaled", "torch"])
@pytest.mark.parametrize("ffn", ["gelu", "swiglu"])
def test_weights_have_the_std_that_the_experiments_draw(init: str, ffn: str) -> None:
    pytest.importorskip("torch")
    from omegaconf import OmegaConf  # noqa: PLC0415

    from experiments.config import ModelConfig  # noqa: PLC0415
    from experiments.exact.check import norm  # noqa: PLC0415
    from experiments.init import initialise, matrices  # noqa: PLC0415
    from experiments.model import Shape, Transformer  # noqa: PLC0415

    setup = config(init, model__ffn=ffn, model__depth=3, init__zero=["wo"], init__qk_gain=1.0, model__branches=["attn", "ffn"])
    setup["model"] |= {"value_only": False, "memory_tokens": 4, "memory_cosine": 0.0}
    cfg = OmegaConf.create(setup)
    options = OmegaConf.structured(ModelConfig(**setup["model"]))
    model = Transformer(options, OmegaConf.structured(norm(placement="pre")), Shape(vocab=5, context=8))
    initialise(model, cfg.init, seed=0)
    w = weights(setup)
    drawn = [(m.name, m.linear) for m in matrices(model) if m.layer == 1 and m.name in w.std]
    assert {name for name, _ in drawn} == {"wv", "wo", "w1", "w2"} | ({"wg"} if ffn == "swiglu" else set())
    for name, linear in drawn:
        assert float(linear.weight.detach().std()) == pytest.approx(w.std[name], rel=0.03)
        assert linear.weight.shape[0] == (w.hidden if name in ("w1", "wg") else w.width)
        assert float(linear.bias.detach().std()) == pytest.approx(w.bias[name], rel=0.2)


def test_what_the_theory_lacks_is_named() -> None:
    with pytest.raises(UncoveredError, match=r"init\.name=orthogonal is not among xavier"):
        branch_gains(config("orthogonal"))
    with pytest.raises(UncoveredError, match=r"no branch ffn with model\.ffn=moe"):
        branch_gains(config(model__ffn="moe"))
    with pytest.raises(UncoveredError, match="no branch conv"):
        branch_gains(config(model__branches=["conv"]))
