"""Claims on whether and why Post-LN's gradient vanishes from block to block: C2b to C2e."""

from typing import Any

from analysis.evidence.curves import Curve, rate
from analysis.evidence.measures import Apart, DepthLaw, LayerLaw
from analysis.evidence.quantities import Point
from analysis.evidence.verdicts import Above, Law
from analysis.ledger.entry import Claim, Test
from analysis.ledger.gradients import COLD, COLLAPSE, PER_BLOCK, POST, RELATIVE, STREAM, WARMED, XIONG


def _profile(study: str, where: dict[str, Any]) -> str:
    """The figure that shows the gradient over the layers, or its rate, in these runs."""
    if study == "collapse" and where == COLLAPSE:
        return "collapse_profile"
    return "init_profile" if study == "init_scaling" else "rate"


def exponential(when: str, study: str, where: dict[str, Any], step: int = 0, *, whole: bool = False) -> tuple[Test, ...]:
    """The gradient inside the deepest network; with `whole` also at the first point over depths, and the relative one."""
    tests = []
    for column, words in (("grad_stream", STREAM), ("grad_rel", RELATIVE))[: 1 + whole]:
        name = when + (", relative" if column == "grad_rel" else "")
        inside = Test(
            when=f"{name}, from block to block", study=study, where=where,
            quantity=f"{words}, against blocks crossed from the end", unit=PER_BLOCK,
            prediction="falls exponentially", measure=LayerLaw(Curve(column, step=step)),
            rule=Law("exponential", -1), figure=_profile(study, where),
        )  # fmt: skip
        over = Test(
            when=f"{name}, first point over L", study=study, where={key: v for key, v in where.items() if key != "depth"},
            quantity=words, unit=PER_BLOCK, prediction="falls exponentially", measure=DepthLaw(Point(column, "first", step)),
            rule=Law("exponential", -1), figure="exponents" if step == 0 else "collapse_profile",
        )  # fmt: skip
        tests += [inside, over] if whole else [inside]
    return tuple(tests)


C2B = Claim(
    "C2b",
    "Under Post-LN the gradient vanishes exponentially with depth.",
    f"popular account; the factor (2/3)^((L-l)/2) of {XIONG}, appendix F; Takase et al. 2022 (B2T), arXiv:2206.00330",
    (
        *exponential("at initialisation", "init_scaling", POST | {"depth": 96}, whole=True),
        *exponential("at step 40 without warmup", "collapse", COLLAPSE, 40, whole=True),
        *exponential("at step 40 with warmup", "collapse", WARMED, 40),
        *(
            test
            for step in (2, 5, 10, 20)
            for test in exponential(f"at step {step} without warmup", "collapse", COLLAPSE, step)
        ),
        *exponential("at step 45 with warmup, an equal sum of rates", "collapse", WARMED, 45),
        *(
            test
            for factor, words in (("eps", "Adam's ε 1e-16"), ("radam", "RAdam"), ("sgd", "SGD"), ("fp64", "float64"))
            for test in exponential(f"at step 40 without warmup, {words}", "collapse",
                                    {"norm": "post", "factor": factor} | COLD, 40)
        ),
        *(
            test
            for width in (64, 128, 256)
            for test in exponential(f"at step 40 without warmup, {width} features, L = 24", "width",
                                    {"norm": "post", "model.width": width, "init.name": "xavier"} | COLD, 40)
        ),
    ),
)  # fmt: skip


LESS_STEEP = 0.05  # per block, a fifth of the rate at which the gradient falls there: a change that explains something


def intervention(when: str, factor: str) -> Test:
    return Test(
        when=when, study="collapse", where={"norm": "post", "factor": (factor, "base"), "depth": 48} | COLD,
        quantity=f"rate per block of the {STREAM} at step 40, minus that without the change", unit=PER_BLOCK,
        prediction="the gradient falls less steeply", measure=Apart(rate("grad_stream", 40), "factor", factor, "base"),
        rule=Above(LESS_STEEP), figure="rate",
    )  # fmt: skip


C2C = Claim(
    "C2c",
    "The collapse of Post-LN's gradient in the first steps needs attention.",
    "our own question, after Noci et al. 2022, arXiv:2206.03126, on rank collapse at initialisation",
    (intervention("attention is removed", "ffn_only"),),
)
C2E = Claim(
    "C2e",
    "Where attention has aligned the tokens, Post-LN's gradient vanishes.",
    "carried over from Noci et al. 2022, arXiv:2206.03126, section 3, where the gradients of W_Q and W_K do",
    exponential("before the first update, tokens alike (cosine 1.00 at the last point)", "collapse", COLLAPSE),
)
C2D = Claim(
    "C2d",
    "Post-LN's gradient collapses in the first steps because the embeddings are trained.",
    "our own question",
    (intervention("the embeddings are frozen", "frozen"),),
)

CLAIMS = (C2B, C2C, C2D, C2E)
