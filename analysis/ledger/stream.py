"""Claims on the stream's variance, on branches and on what they make of the gradient: C4, C5, C8, C12b, C17 to C20, C24."""

import math
from typing import Any

from analysis.evidence.curves import Curve, Slope, rate
from analysis.evidence.measures import DepthLaw, Exponent, LayerLaw, Mean, Outside
from analysis.evidence.quantities import Difference, Growth, OfStep, OverBlocks, Point, damping, mean_square
from analysis.evidence.record import LAST
from analysis.evidence.verdicts import AtMost, Law, Near
from analysis.ledger.entry import Claim, Test, law, theorem
from analysis.ledger.gradients import IN_DEPTH, PER_BLOCK, POST, PRE, STREAM, XIONG, last_w2

AT_96 = {"depth": 96}
GROWTH = "growth of the stream's variance over all blocks, Var(x_L) - Var(x_0)"
ADMIN = "Liu et al. 2020 (Admin), arXiv:2004.08249"


def grows(when: str, study: str, where: dict[str, Any], step: int = 0) -> Test:
    return Test(
        when=when, study=study, where=where, quantity="Var(x_l) - Var(x_0) (a square), against the layer",
        unit="exponent in l, l ≥ 12", prediction="l^1",
        measure=Mean(Slope(Curve("stream_var", "layer", step, from_x=12, grown=True))),
        rule=law(1), figure="init_variance" if step == 0 else "variance",
    )  # fmt: skip


C4 = Claim(
    "C4",
    "Under Pre-LN E‖x_l‖² is O(l): it grows linearly with the layer.",
    f"{XIONG}, Lemma 2",
    (
        Test(
            when="in the setting of the theory, between (1 + l/2) d and (1 + 3l/2) d", study="xiong2020",
            where={"norm": "pre"},
            quantity="E‖x_l‖²/d (squared norm): share by which it lies outside the bounds, at the worst point from 1 on",
            unit="1", prediction="inside the bounds at every l", measure=Outside("stream_rms", 0.5, 1.5), rule=AtMost(0),
            figure="theory",
        ),
        grows("at initialisation, Xavier, over the layers", "init_scaling", PRE | AT_96),
        grows("after training without warmup, over the layers", "depth_warmup",
              {"norm": "pre", "warmup": 0, "outcome": "trained"}, LAST),
    ),
)  # fmt: skip


def jacobian(branch: str, kind: str) -> Test:
    """kind : own, for the stream that enters the join; first, for point 0."""
    name = {"attn": "attention", "ffn": "feed-forward"}[branch]
    own = kind == "own"
    curve = Curve(f"jac_{branch}_{kind}", "stream_var" if own else "number", from_x=1 if own else 12)
    return Test(
        when=f"{name} branch", study="branch_jacobian", where={"norm": "pre"},
        quantity=f"Jacobian norm of the {name} branch for "
        + ("its own input, against Var(x_l)" if own else "x_0, against its number i"),
        unit="exponent in Var(x_l)" if own else "exponent in i, i ≥ 12", prediction="Var^-1/2" if own else "i^-1/2",
        measure=Mean(Slope(curve)), rule=law(-0.5), figure="jacobian",
    )  # fmt: skip


C5A = Claim(
    "C5a",
    "Under Pre-LN the Jacobian of a branch for its own input falls as 1/√Var of that input.",
    f"{XIONG}, Lemma 3 (LayerNorm's Jacobian)",
    tuple(jacobian(branch, "own") for branch in ("attn", "ffn")),
)
C5B = Claim(
    "C5b",
    "Under Pre-LN ∂Branch_i/∂x_l is O(1/√i) at fixed l.",
    f"popular reading of {XIONG}, Lemma 3",
    tuple(jacobian(branch, "first") for branch in ("attn", "ffn")),
)


def scaled(norm: str, words: str, quantity: str, measure: Exponent, figure: str = "claims") -> Test:
    name = {"pre": "Pre-LN", "post": "Post-LN"}[norm]
    return Test(
        when=f"{name}, {words}", study="init_scaling", where={"factor": "gpt2_scaled", "norm": norm}, quantity=quantity,
        unit=IN_DEPTH, prediction="L^0", measure=measure, rule=law(0), figure=figure,
    )  # fmt: skip


def scaled_tests(norm: str) -> tuple[Test, ...]:
    matrices = {"wo": "W_O", "w2": "W_2", "w1": "W_1", "wv": "W_V", "wq": "W_Q"}
    return (
        scaled(norm, "stream at the last point", STREAM, Exponent(Point("grad_stream", "last")), "exponents"),
        *(
            scaled(norm, f"{name} of the last block", f"norm of the gradient of {name} of the last block",
                   Exponent(Point(f"grad_{column}", "last block")))
            for column, name in matrices.items()
        ),
    )  # fmt: skip


C8 = Claim(
    "C8",
    "Scaling the output projections by 1/√(2L) at initialisation makes the stream and all gradients independent of depth.",
    "Radford et al. 2019 (GPT-2), section 2.3, and its common explanation",
    (
        scaled("pre", "growth of the stream's variance", GROWTH, Exponent(Growth("stream_var"))),
        *scaled_tests("pre"),
        *scaled_tests("post"),
    ),
)

C12B = Claim(
    "C12b",
    "The final norm is what makes the last W_2's gradient fall as 1/√L under Pre-LN; without it that is O(1).",
    f"{XIONG}, Theorem 1, whose proof uses the final norm",
    tuple(
        last_w2(when, "final_norm", {"norm": "pre", "model.final_norm": there}, law(value))
        for when, there, value in (("with a final norm", True, -0.5), ("without a final norm", False, 0))
    ),
    whole=True,
)

C17 = Claim(
    "C17",
    "Under Post-LN the state before the feed-forward norm has E‖x‖² = 1.5 d.",
    f"{XIONG}, Lemma 2",
    tuple(
        Test(
            when=when, study=study, where=where,
            quantity="variance of the feed-forward norm's input (a square), mean over blocks",
            unit="1", prediction="1.5", measure=Mean(OverBlocks(mean_square, "norm_std_ffn")), rule=Near(1.5, 0.045),
        )
        for when, study, where in (
            ("in the setting of the theory", "xiong2020", {"norm": "post"}),
            ("full blocks at Xavier with GELU", "init_scaling", POST | AT_96),
        )
    ),
)  # fmt: skip

TWO_THIRDS = math.log(2 / 3) / 2  # per block; told from 0 where it is nearer to this than to 0
C18 = Claim(
    "C18",
    "Under Post-LN the gradient at layer l carries a factor (2/3)^((L-l)/2).",
    f"{XIONG}, appendix F",
    tuple(
        Test(
            when=when, study=study, where=where, quantity=f"{STREAM}, against blocks crossed from the end", unit=PER_BLOCK,
            prediction="ln(2/3)/2", measure=Mean(rate("grad_stream")), rule=Near(TWO_THIRDS, abs(TWO_THIRDS) / 2),
            figure="theory",
        )
        for when, study, where in (
            ("in the setting of the theory", "xiong2020", {"norm": "post"}),
            ("feed-forward blocks only, ReLU", "init_scaling", {"factor": "ffn_only", "norm": "post"}),
        )
    ),
)  # fmt: skip


def crossing(cosine: float, words: str, tolerance: float) -> tuple[Test, Test]:
    where = {"norm": "post", "model.memory_cosine": cosine}
    law_test = Test(
        when=f"{words}, law", study="cross_attention", where=where,
        quantity=f"{STREAM}, against blocks crossed from the end", unit=PER_BLOCK, prediction="falls exponentially",
        measure=LayerLaw(Curve("grad_stream")), rule=Law("exponential", -1),
    )  # fmt: skip
    rate_test = Test(
        when=f"{words}, rate", study="cross_attention", where=where,
        quantity=f"rate per block of the {STREAM}, minus the mean of ln (1 + c)^-1/2, c measured as cross-attention's rms²",
        unit=PER_BLOCK, prediction="(1 + c)^-1/2 a block", rule=Near(0, tolerance),
        measure=Mean(Difference(rate("grad_stream"), OverBlocks(damping, "cross_rms"))),
    )  # fmt: skip
    return law_test, rate_test


C19 = Claim(
    "C19",
    "With cross-attention Post-LN's gradient vanishes exponentially already at initialisation, by (1 + c)^-1/2 a block.",
    f"{ADMIN}, section 3 (only decoders vanish); the factor follows from the variances",
    (  # tolerance: a quarter of the rate predicted
        *crossing(1.0, "memory tokens all alike", 0.1),
        *crossing(0.0, "memory tokens independent", 0.007),
    ),
)


def amplified(norm: str, ffn: str) -> Test:
    post, name = norm == "post", {"relu": "ReLU", "gelu": "GELU"}[ffn]
    among = ("constant", "power", "exponential", "logarithmic")
    quantity = OfStep("amplification")
    return Test(
        when=f"{'Post-LN' if post else 'Pre-LN'}, {name}", study="amplification", where={"norm": norm, "model.ffn": ffn},
        quantity="mean square of the output's change under weight noise of size ε, over ε² (a square)",
        unit=IN_DEPTH if post else "per ln L", prediction="L^1" if post else "a + b ln L",
        measure=Exponent(quantity) if post else DepthLaw(quantity, "logarithmic", from_depth=6, among=among),
        rule=law(1) if post else Law("logarithmic", 1, fold=None), figure="amplification",
    )  # fmt: skip


C20 = Claim(
    "C20",
    "A small change of the weights moves the output in proportion to depth under Post-LN and to its logarithm under Pre-LN.",
    f"{ADMIN}, section 4.2",
    tuple(amplified(norm, ffn) for norm in ("post", "pre") for ffn in ("relu", "gelu")),
)


def inverse_root(when: str, where: dict[str, Any], part: str) -> Test:
    half = {"lower": "where Var(x_l) is small", "upper": "where it is large"}[part]
    return Test(
        when=f"{when}, {half}", study="init_scaling", where={"norm": "pre"} | where | AT_96,
        quantity=f"{STREAM}, against Var(x_l), over half of the range of its logarithm", unit="exponent in Var(x_l)",
        prediction="Var^-1/2", measure=Mean(Slope(Curve("grad_stream", "stream_var"), part=part)), rule=theorem(-0.5),
    )  # fmt: skip


C24 = Claim(
    "C24",
    "Under Pre-LN ‖∂loss/∂x_l‖ is proportional to 1/√Var(x_l).",
    f"mean-field theory without attention; {XIONG}, Theorem 1 for its last matrix",
    tuple(
        inverse_root(when, where, part)
        for when, where in (("feed-forward blocks only, ReLU", {"factor": "ffn_only"}), ("full blocks at Xavier", PRE))
        for part in ("lower", "upper")
    ),
)

CLAIMS = (C4, C5A, C5B, C8, C12B, C17, C18, C19, C20, C24)
