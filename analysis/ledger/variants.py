"""Claims on other placements, on QK-norm and on precision: C9, C11, C22, C23."""

from typing import Any

from analysis.evidence.counts import Outcomes
from analysis.evidence.curves import Curve
from analysis.evidence.measures import Exponent, LayerLaw, Mean
from analysis.evidence.quantities import Growth, OverBlocks, Point, Ratio, largest
from analysis.evidence.record import LAST
from analysis.evidence.verdicts import Above, Always, AtMost, Law, Near, Never, Rule
from analysis.ledger.entry import Claim, Test, law
from analysis.ledger.gradients import IN_DEPTH, W2

LOGIT = OverBlocks(largest, "attn_logit_max", LAST), OverBlocks(largest, "attn_logit_max", 0)

RATES = {"1e-2": 1e-2, "3e-2": 3e-2}
PLAIN = {"norm": "pre", "norm.qk": "none"}


def growth(when: str, where: dict[str, Any], rate: str, rule: Rule, *, premise: str = "") -> Test:
    return Test(
        when=f"rate {rate}, {when}", study="logit_growth", where=where | {"optim.lr": RATES[rate]},
        quantity="largest attention logit of all blocks at the last step, over that at initialisation", unit="1",
        prediction="more than ten times" if isinstance(rule, Above) else "at most ten times",
        measure=Mean(Ratio(*LOGIT), log=True), rule=rule, figure="logit_growth", premise=premise,
    )  # fmt: skip


def stops(*cases: tuple[str, dict[str, Any]]) -> tuple[Test, ...]:
    """At each rate the blow-up, and what there is of it in these cases."""
    without = {rate: growth("Pre-LN without QK-norm: the blow-up", PLAIN, rate, Above(10)) for rate in RATES}
    found = [growth(*case, rate, AtMost(10), premise=without[rate].when) for case in cases for rate in RATES]
    return (*without.values(), *found)


C9A = Claim(
    "C9a",
    "Sandwich norm stops the blow-up of attention logits.",
    "common reading of Ding et al. 2021 (CogView), arXiv:2105.13290, who use it against large values of the stream",
    stops(("sandwich norm", {"norm": "sandwich", "norm.qk": "none"})),
)
C9B = Claim(
    "C9b",
    "Normalising queries and keys stops the blow-up of attention logits.",
    "Henry et al. 2020, arXiv:2010.04245; Dehghani et al. 2023 (ViT-22B), arXiv:2302.05442",
    stops(
        ("Pre-LN with RMSNorm of queries and keys", {"norm": "pre", "norm.qk": "rmsnorm"}),
        ("Pre-LN with L2 norm of queries and keys", {"norm": "pre", "norm.qk": "l2"}),
    ),
)

C11 = Claim(
    "C11",
    "In half precision training spikes or gives NaN unless the model is Pre-LN.",
    "popular account; against it Kim et al. 2025 (Peri-LN), arXiv:2502.02732",
    tuple(
        Test(
            when=f"{name}, {precision}", study="precision", where={"norm": norm, "train.precision": precision},
            quantity="share of runs that diverge", unit="share", prediction=words, measure=Outcomes("diverged"), rule=rule,
        )
        for precision in ("fp16", "bf16")
        for norm, name, words, rule in (
            ("post", "Post-LN", "every run diverges", Always()),
            ("pre", "Pre-LN", "no run diverges", Never()),
        )
    ),
)  # fmt: skip

C22 = Claim(
    "C22",
    "The last feed-forward matrix's gradient falls as 1/√L under DeepNorm and as 1/L under Keel.",
    "Wang et al. 2022 (DeepNet), arXiv:2203.00555; Keel, arXiv:2601.19895",
    tuple(
        Test(
            when=name, study="variants", where={"norm": norm, "factor": "init"}, quantity=W2, unit=IN_DEPTH,
            prediction=f"L^{value:g}", measure=Exponent(Point("grad_w2", "last block")), rule=law(value),
            figure="variants_exponents",
        )
        for norm, name, value in (("deepnorm", "DeepNorm", -0.5), ("keel", "Keel", -1))
    ),
)  # fmt: skip

C23 = Claim(
    "C23",
    "At initialisation the stream's variance grows by 1 a branch under sandwich norm, and as ln l under LayerNorm Scaling.",
    "Kim et al. 2025 (Peri-LN), arXiv:2502.02732; Sun et al. 2025, arXiv:2502.05795",
    (
        Test(
            when="sandwich norm", study="variants", where={"norm": "sandwich", "factor": "init"},
            quantity="growth of the stream's variance (a square) per branch", unit="1", prediction="1",
            measure=Mean(Growth("stream_var", branches=2)), rule=Near(1, 0.1), figure="variants_variance",
        ),
        Test(
            when="LayerNorm Scaling", study="variants", where={"norm": "lns", "factor": "init"},
            quantity="Var(x_l) (a square), against the layer", unit="per ln l", prediction="a + b ln l",
            measure=LayerLaw(
                Curve("stream_var", "layer"), "logarithmic", among=("constant", "power", "exponential", "logarithmic")
            ),
            rule=Law("logarithmic", 1, fold=None), figure="variants_variance",
        ),
    ),
)  # fmt: skip

CLAIMS = (C9A, C9B, C11, C22, C23)
