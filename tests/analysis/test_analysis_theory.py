"""Laws of the mean-field theory: limits known in closed form, and random networks with Jacobians written by hand."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from random_network import measured
from synthetic_store import Run

from analysis.meanfield.gains import Coherence
from analysis.meanfield.weights import UncoveredError
from analysis.theory import branch_gains, data_coherence, predict, predict_mixing, relative_error

FFN = ["ffn"]
# One head without W_O, W_Q = W_K = 0, d_ff = d, ReLU (Xiong et al. 2020, section 3.2).
XIONG = {
    "model.ffn": "relu", "model.d_ff": 64, "model.value_only": True, "model.n_head": 1, "model.positions": "none",
    "init.zero": ["wq", "wk"],
}  # fmt: skip


def config(norm: str = "pre", depth: int = 12, init: str = "xavier", **override: Any) -> dict[str, Any]:
    return Run(norm=norm, depth=depth, init=init, override=override).config


def growth(setup: dict[str, Any]) -> float:
    gradient_N = predict(setup).gradient_N
    return gradient_N[0] / gradient_N[-1]


def test_pre_ln_falls_as_one_over_the_streams_std_where_a_branch_returns_what_it_adds() -> None:
    found = predict(config(depth=96, **{"model.branches": FFN, "model.ffn": "relu", "norm.eps": 0.0}))
    gain = 64 * 256 * (2 / 320) ** 2 / 2
    np.testing.assert_allclose(found.stream_var_N, 1 + gain * np.arange(97), rtol=1e-12)
    np.testing.assert_allclose(found.gradient_N, found.stream_var_N**-0.5, rtol=1e-7)  # final norm included


def test_without_a_final_norm_pre_lns_last_gradient_does_not_fall_with_depth() -> None:
    bare = predict(config(**{"model.final_norm": False}))
    normed = predict(config())
    assert bare.gradient_N[-1] == 1
    np.testing.assert_allclose(bare.gradient_N, normed.gradient_N * normed.stream_var_N[-1] ** 0.5, rtol=1e-5)


@pytest.mark.parametrize("depth", [6, 96])
def test_a_relu_feed_forward_leaves_post_lns_gradient_alone_at_any_depth(depth: int) -> None:
    found = predict(config("post", depth, **{"model.branches": FFN, "model.ffn": "relu", "norm.eps": 0.0}))
    np.testing.assert_allclose(found.gradient_N, 1.0, rtol=1e-12)
    np.testing.assert_allclose(found.stream_var_N, 1.0, rtol=1e-12)


def test_gelu_makes_post_lns_gradient_grow_slowly_and_steadily() -> None:
    """Seven per mille a block at Xavier and four widths; 8 per cent and more where the hidden units have unit variance."""
    per_block = {
        d_ff: growth(config("post", 48, **{"model.branches": FFN, "model.d_ff": d_ff})) ** (1 / 48) for d_ff in (256, 64)
    }
    assert per_block[256] == pytest.approx(1.007, abs=2e-4)
    unit = 64 * 2 / 128  # variance of W_1 x at d_ff = d: forward and backward gains are the moments themselves
    assert unit == 1
    assert per_block[64] == pytest.approx(((1 + 0.4559) / (1 + 0.4252)) ** 0.5, rel=1e-4)


def test_xiongs_post_ln_has_variance_one_and_a_half_before_the_feed_forwards_norm() -> None:
    gain = branch_gains(config("post", **XIONG))["ffn"]
    assert (1 + gain.forward, gain.backward) == pytest.approx((1.5, 0.5), rel=1e-12)


@pytest.mark.parametrize("solve", [predict, predict_mixing])
@pytest.mark.parametrize("rho", [0.0, 0.3, 1.0])
def test_pre_lns_stream_grows_within_lemma_2(solve: Callable, rho: float) -> None:
    """1 + l/2 <= E||x_l||² / d <= 1 + 3 l/2 (Xiong et al. 2020, lemma 2); the upper bound is what aligned tokens have."""
    l_N = np.arange(25)
    found = solve(config(depth=24, **XIONG, **{"norm.eps": 0.0}), coherence=Coherence(rho, 0.0)).stream_var_N
    assert np.all(found >= (1 + l_N / 2) * (1 - 1e-12))
    assert np.all(found <= (1 + 3 * l_N / 2) * (1 + 1e-12))
    if rho == 1:
        np.testing.assert_allclose(found, 1 + 3 * l_N / 2, rtol=1e-9)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("solve", [predict, predict_mixing])
def test_scaled_init_keeps_every_product_of_order_one(norm: str, solve: Callable) -> None:
    """From 48 to 192 blocks gradients grow by the same factor; without the scale Pre-LN's grow by about two."""
    std = {"init.std": 0.125, "model.ffn": "relu", "train.context": 8}
    scaled = [solve(config(norm, depth, "gpt2_scaled", **std)) for depth in (48, 192)]
    first, second = (p.gradient_N[0] / p.gradient_N[-1] for p in scaled)
    assert first == pytest.approx(second, rel=0.02)
    assert scaled[1].stream_var_N.max() < 4
    if norm == "pre" and solve is predict:
        assert growth(config(norm, 192, "gpt2", **std)) / growth(config(norm, 48, "gpt2", **std)) == pytest.approx(2, rel=0.02)


def test_post_ln_with_a_coherent_memory_vanishes_exponentially() -> None:
    """(1 + c)^(-1/2) a block, and not at all with a memory of many independent tokens."""

    def last(cosine: float) -> float:
        override = {"model.branches": ["cross"], "model.memory_tokens": 10**9, "model.memory_cosine": cosine, "norm.eps": 0.0}
        return growth(config("post", 96, **override))

    assert last(0.8) == pytest.approx(1.8 ** (-96 / 2), rel=1e-6)
    assert last(0.0) == pytest.approx(1, rel=1e-6)


def test_the_first_point_has_the_variance_of_the_summed_embeddings() -> None:
    tables = {"learned": 2, "none": 1, "rope": 1}
    for positions, count in tables.items():
        assert predict(config(**{"model.positions": positions})).stream_var_N[0] == 1
        override = {"model.positions": positions, "init.embedding_std": 0.3}
        assert predict(config(**override)).stream_var_N[0] == pytest.approx(count * 0.09, rel=1e-12)


def test_a_norm_with_a_large_eps_divides_by_less() -> None:
    """Pre-LN with linear attention over one token: c = b = v / (v + eps)."""
    override = {"model.branches": ["attn"], "train.context": 1, "norm.eps": 0.5}
    found = predict(config(depth=1, **override))
    np.testing.assert_allclose(found.stream_var_N, [1, 1 + 1 / 1.5], rtol=1e-12)
    last = (1 + 1 / 1.5 + 0.5) ** -0.5
    np.testing.assert_allclose(found.gradient_N, [last * (1 + 1 / 1.5) ** 0.5, last], rtol=1e-12)
    assert predict(config("post", 1, **override)).stream_var_N[-1] == pytest.approx(2 / 2.5, rel=1e-12)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("override", [{"model.branches": FFN}, {"train.context": 1}])
def test_without_other_tokens_to_attend_to_mixing_changes_nothing(norm: str, override: dict[str, Any]) -> None:
    coherence = Coherence(0.2, 0.1)
    alone, mixed = (solve(config(norm, **override), coherence=coherence) for solve in (predict, predict_mixing))
    np.testing.assert_allclose(mixed.stream_var_N, alone.stream_var_N, rtol=1e-10)
    np.testing.assert_allclose(mixed.gradient_N, alone.gradient_N, rtol=1e-10)
    assert np.isnan(alone.token_cosine_N).all()


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_a_random_feed_forward_stack_does_as_predicted(norm: str, activation: str) -> None:
    setup = config(norm, 12, **{"model.width": 128, "model.branches": FFN, "model.ffn": activation})
    variance_N, gradient_N, _ = measured(norm, activation, FFN, (4, 128))
    found = predict(setup)
    assert relative_error(found.stream_var_N, variance_N).largest < 0.04
    assert relative_error(found.gradient_N, gradient_N).largest < 0.05


@pytest.mark.parametrize("norm", ["pre", pytest.param("post", marks=pytest.mark.slow)])
def test_a_random_transformer_with_flat_attention_does_as_predicted_with_mixing_and_not_without(norm: str) -> None:
    """Networks of this width scatter by some per cent, most in Post-LN, where all tokens come to share one gradient."""
    setup = config(norm, 12, **{"model.width": 128, "train.context": 12})
    variance_N, gradient_N, cosine_N = measured(norm, "gelu", ["attn", "ffn"], (12, 128))
    found, without = predict_mixing(setup), predict(setup)
    assert relative_error(found.stream_var_N, variance_N).largest < 0.08
    assert relative_error(found.gradient_N, gradient_N).largest < 0.08
    np.testing.assert_allclose(found.token_cosine_N, cosine_N, atol=0.03)
    missed = (
        relative_error(without.gradient_N, gradient_N) if norm == "post" else relative_error(without.stream_var_N, variance_N)
    )
    assert missed.largest > 0.3


def test_coherence_of_the_data_is_that_of_tokens_that_occur_twice() -> None:
    """First cosine P / 2 with positions, P without; random tokens have P = 1 / V and targets that do not align."""
    found = data_coherence(config(), first_cosine=0.03, vocab=256)
    assert (found.stream, found.gradient) == pytest.approx((0.03, (0.06 - 1 / 256) / (1 - 1 / 256)), rel=1e-12)
    random = data_coherence(config(**{"model.positions": "none"}), first_cosine=1 / 50, vocab=50)
    assert random.gradient == pytest.approx(0, abs=1e-12)
    onehot_VV = np.full((50, 50), 1 / 50) - np.eye(50)  # of all pairs of targets
    pair = np.mean(onehot_VV @ onehot_VV) / np.mean(np.diag(onehot_VV @ onehot_VV))
    assert pair == pytest.approx(0, abs=1e-12)


def test_the_relative_error_is_logarithmic_and_blind_to_a_constant_only_where_asked() -> None:
    predicted = np.array([1.0, 2.0, 4.0])
    exact = relative_error(predicted, 3 * predicted, free_scale=True)
    assert (exact.rms, exact.largest, exact.scale) == pytest.approx((0, 0, 3), abs=1e-12)
    fixed = relative_error(predicted, 3 * predicted)
    assert (fixed.rms, fixed.largest, fixed.scale) == pytest.approx((np.log(3), np.log(3), 1))
    bent = relative_error([1.0, 1.0], [np.exp(-0.1), np.exp(0.3)], free_scale=True)
    assert (bent.rms, bent.largest, bent.scale) == pytest.approx((0.2, 0.2, np.exp(0.1)))


def test_zeros_and_what_is_not_finite_are_counted_and_not_compared() -> None:
    found = relative_error(np.ones(5), [0.0, np.nan, np.inf, 1.0, 1.0])
    assert (found.left_out, found.rms) == (3, 0)
    none = relative_error([1.0], [0.0])
    assert none.left_out == 1
    assert np.isnan([none.rms, none.largest, none.scale]).all()
    with pytest.raises(ValueError, match=r"shape \(2,\) cannot be compared with values of shape \(3,\)"):
        relative_error([1.0, 1.0], [1.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ({"norm.placement": "sandwich"}, "placements pre, post, not sandwich"),
        ({"norm.kind": "dyt"}, r"norm\.kind=dyt"),
        ({"norm.kind": "none"}, r"norm\.kind=none"),
        ({"norm.qk": "rmsnorm"}, r"norms of queries and keys; norm\.qk=rmsnorm"),
        ({"model.dropout": 0.1}, r"dropout; model\.dropout=0\.1"),
    ],
)
def test_what_the_theory_does_not_cover_is_refused(override: dict[str, Any], message: str) -> None:
    for ask in (predict, predict_mixing, branch_gains):
        with pytest.raises(UncoveredError, match=message):
            ask(config(**override))
