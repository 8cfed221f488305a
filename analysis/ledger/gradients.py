"""Claims on how gradients depend on depth: C1, C2a, C3, C26."""

from typing import Any

from analysis.evidence.measures import FEWEST_DEPTHS, DepthLaw, Exponent, Mean
from analysis.evidence.quantities import Point
from analysis.evidence.record import LAST, AtLeast
from analysis.evidence.verdicts import Law, Near
from analysis.ledger.entry import Claim, Test, law, theorem

STREAM = "norm of ∂loss/∂x_l"
RELATIVE = "relative norm of ∂loss/∂x_l: times √Var(x_l), over the same at point L"
W2 = "norm of the gradient of W_2 of the last block"
IN_DEPTH, PER_BLOCK = "exponent in L", "ln per block"
XAVIER = {"factor": "base", "init.name": "xavier"}
POST, PRE = XAVIER | {"norm": "post"}, XAVIER | {"norm": "pre"}
WARM, COLD = {"warmup": AtLeast(1)}, {"warmup": 0}
COLLAPSE = POST | COLD
WARMED = {"norm": "post", "factor": "warmup", "init.name": "xavier"} | WARM
XIONG = "Xiong et al. 2020, arXiv:2002.04745"


def at_point(place: str, norm: dict[str, Any], value: float) -> Test:
    """The exponent of the stream's gradient at initialisation."""
    return Test(
        when=f"at initialisation, {place} stream point",
        study="init_scaling", where=norm, quantity=STREAM, unit=IN_DEPTH, prediction=f"L^{value:g}",
        measure=Exponent(Point("grad_stream", place)), rule=law(value),
        figure="claims" if place == "middle" else "exponents",
    )  # fmt: skip


C1 = Claim(
    "C1",
    "Under Pre-LN the gradient with respect to any point of the residual stream is O(1), whatever the depth.",
    f"popular reading of {XIONG}, Theorem 1",
    (
        at_point("first", PRE, 0),
        at_point("middle", PRE, 0),
        at_point("last", PRE, 0),
        Test(
            when="at the end of training without warmup, first stream point",
            study="depth_warmup", where={"norm": "pre", "outcome": "trained"} | COLD, quantity=STREAM, unit=IN_DEPTH,
            prediction="L^0", measure=Exponent(Point("grad_stream", "first", LAST)), rule=law(0), figure="headline",
        ),
    ),
)  # fmt: skip

C2A = Claim(
    "C2a",
    "Under Post-LN the gradient is O(1/L).",
    "popular account; in no paper we know",
    (
        at_point("first", POST, -1),
        Test(
            when="at initialisation, first stream point, relative", study="init_scaling", where=POST, quantity=RELATIVE,
            unit=IN_DEPTH, prediction="L^-1", measure=Exponent(Point("grad_rel", "first")), rule=law(-1),
        ),
        Test(
            when="at initialisation, W_2 of the last block", study="init_scaling", where=POST, quantity=W2, unit=IN_DEPTH,
            prediction="L^-1", measure=Exponent(Point("grad_w2", "last block")), rule=law(-1), figure="exponents",
        ),
        Test(
            when="at step 40 without warmup, first stream point", study="collapse", where=COLLAPSE, quantity=STREAM,
            unit=IN_DEPTH, prediction="L^-1", measure=Exponent(Point("grad_stream", "first", 40)), rule=law(-1),
            figure="collapse_profile",
        ),
        Test(
            when="at step 40 without warmup, first stream point, relative", study="collapse", where=COLLAPSE,
            quantity=RELATIVE, unit=IN_DEPTH, prediction="L^-1", measure=Exponent(Point("grad_rel", "first", 40)),
            rule=law(-1), figure="collapse_profile",
        ),
        Test(
            when="at step 32 with warmup, first stream point", study="depth_warmup",
            where={"norm": "post", "outcome": "trained"} | WARM, quantity=STREAM, unit=IN_DEPTH, prediction="L^-1",
            measure=Exponent(Point("grad_stream", "first", 32)), rule=law(-1), figure="headline",
        ),
        Test(
            when="at the end of training with warmup, first stream point (runs that trained)", study="depth_warmup",
            where={"norm": "post", "outcome": "trained"} | WARM, quantity=STREAM, unit="exponent in L, L ≥ 6",
            prediction="L^-1", measure=Exponent(Point("grad_stream", "first", LAST), from_depth=6), rule=law(-1),
            figure="headline",
        ),
    ),
)  # fmt: skip


def last_w2(when: str, study: str, where: dict[str, Any], rule: Near) -> Test:
    few = study == "init_width768"  # three depths fit into memory and time
    return Test(
        when=when, study=study, where=where, quantity=W2, unit=f"{IN_DEPTH}, 3 depths" if few else IN_DEPTH,
        prediction=f"L^{rule.value:g}", measure=Exponent(Point("grad_w2", "last block"), fewest=3 if few else FEWEST_DEPTHS),
        rule=rule, figure="exponents" if study in ("init_scaling", "xiong2020") else "claims",
    )  # fmt: skip


C3A = Claim(
    "C3a",
    "As often quoted, Theorem 1 of Xiong et al. says that Post-LN's gradient falls as 1/L and Pre-LN's does not depend on "
    "depth.",
    f"popular reading of {XIONG}, Theorem 1",
    (
        last_w2("Post-LN, in the setting of the theory", "xiong2020", {"norm": "post"}, law(-1)),
        last_w2("Pre-LN, in the setting of the theory", "xiong2020", {"norm": "pre"}, law(0)),
        last_w2("Post-LN, full blocks at Xavier", "init_scaling", POST, law(-1)),
        last_w2("Pre-LN, full blocks at Xavier", "init_scaling", PRE, law(0)),
    ),
)

C3B = Claim(
    "C3b",
    "At initialisation the gradient norm of the last feed-forward matrix is O(d √ln d) under Post-LN and O(d √(ln d / L)) "
    "under Pre-LN.",
    f"{XIONG}, Theorem 1 (norm; squared norm: 0 and -1)",
    (
        last_w2("Post-LN, in the setting of the theory", "xiong2020", {"norm": "post"}, theorem(0)),
        last_w2("Pre-LN, in the setting of the theory", "xiong2020", {"norm": "pre"}, theorem(-0.5)),
        last_w2("Post-LN, full blocks at Xavier", "init_scaling", POST, theorem(0)),
        last_w2("Pre-LN, full blocks at Xavier", "init_scaling", PRE, theorem(-0.5)),
        *(
            last_w2(f"Pre-LN, {words}", "init_scaling", {"factor": factor, "norm": "pre"}, theorem(-0.5))
            for factor, words in (
                ("embedding", "embeddings four times as large"),
                ("gpt2", "N(0, .069²)"),
                ("torch", "torch's default init"),
                ("relu", "full blocks at Xavier with ReLU"),
            )
        ),
        last_w2("Post-LN, GPT-2's width and init", "init_width768", {"norm": "post"}, theorem(0)),
        last_w2("Pre-LN, GPT-2's width and init", "init_width768", {"norm": "pre"}, theorem(-0.5)),
    ),
)


def query_key(matrix: str) -> tuple[Test, Test]:
    name = {"wq": "W_Q", "wk": "W_K"}[matrix]
    words = f"norm of the gradient of {name}"
    first, last = Point(f"grad_{matrix}", "first block"), Point(f"grad_{matrix}", "last block")
    vanishing = Test(
        when=f"Post-LN, {name} of the first block", study="rank_collapse", where={"norm": "post"},
        quantity=f"{words} of block 0, in float64", unit=PER_BLOCK,
        prediction="falls exponentially in L", measure=DepthLaw(first), rule=Law("exponential", -1),
    )  # fmt: skip
    pre = Test(
        when=f"Pre-LN, {name} of the last block, as 1/L", study="rank_collapse", where={"norm": "pre"},
        quantity=f"{words} of the last block, in float64", unit=IN_DEPTH, prediction="L^-1",
        measure=Exponent(last), rule=law(-1),
    )  # fmt: skip
    return vanishing, pre


C26 = Claim(
    "C26",
    "At initialisation tokens align with depth (rank collapse) and the gradients of W_Q and W_K vanish: exponentially in the "
    "first block under Post-LN, as 1/L in the last block under Pre-LN.",
    "Noci et al. 2022, arXiv:2206.03126, section 3; the laws in L are ours",
    (
        Test(
            when="Post-LN, token cosine at the last point", study="rank_collapse", where={"norm": "post", "depth": 96},
            quantity="mean cosine between tokens of a sequence", unit="1", prediction="tokens alike: 1",
            measure=Mean(Point("token_cosine", "last")), rule=Near(1, 0.1),
        ),
        *query_key("wq"),
        *query_key("wk"),
    ),
)  # fmt: skip

CLAIMS = (C1, C2A, C3A, C3B, C26)
