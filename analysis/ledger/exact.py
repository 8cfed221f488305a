"""Claims that need no run, only arithmetic in float64: C7, C13, C14, C15, C16."""

from analysis.evidence.counts import Checked, Checks, OfChecks
from analysis.evidence.sources import EXACT
from analysis.evidence.verdicts import Exact, Near, Rule
from analysis.ledger.entry import Claim, Test
from analysis.ledger.gradients import XIONG


def check(when: str, quantity: str, prediction: str, measure: OfChecks, rule: Rule | None = None) -> Test:
    unit = "checks" if rule is None else "1"
    return Test(when, EXACT, quantity, unit, prediction, measure, rule or Exact())


C7 = Claim(
    "C7",
    "The Jacobian of LayerNorm scales as 1/‖x‖.",
    f"{XIONG}, Lemma 3",
    (
        check("LayerNorm, x scaled by 100", "exponent of the spectral norm of the Jacobian in ‖x‖", "-1",
              Checks("C7", ("layernorm_scale_exponent_*",))),
        check("LayerNorm, ‖x‖ taken as ‖x - mean x‖", "singular values of the Jacobian",
              "d - 2 are √d/‖x - mean x‖, two are 0",
              Checks("C7", ("layernorm_spectral_norm_*", "layernorm_smallest_nonzero_*", "layernorm_rank_*"))),
        check("LayerNorm, x shifted by 10 in every feature", "spectral norm of the Jacobian at x + 10 over that at x",
              "‖x‖/‖x + 10‖, about .19", Checked("C7", ("layernorm_shift_*",)), Near(0.19, 0.1)),
        check("RMSNorm", "singular values of the Jacobian, x also scaled and shifted", "d - 1 are √d/‖x‖, one is 0",
              Checks("C7", ("rmsnorm_*",))),
    ),
)  # fmt: skip

C13A = Claim(
    "C13a",
    "Pre-LN and Post-LN have the same number of parameters.",
    "popular account",
    (
        check("blocks are counted", "parameters of a block of either", "the same closed form", Checks("C13", ("*_block_*",))),
        check("whole models are counted", "parameters of a Pre-LN model minus those of a Post-LN one", "0",
              Checked("C13", ("final_norm",)), Near(0, 0)),
    ),
)  # fmt: skip


def square(ffn: str, name: str, width: int) -> Test:
    pattern = f"*_block_{ffn}_d{width}_*"
    return check(f"{name}, d = {width}", "parameters of a block over 12 d²", "1 within 5 %",
                 Checked("C13", (pattern,), 12 * width**2), Near(1, 0.05))  # fmt: skip


C13B = Claim(
    "C13b",
    "A block has about 12 d² parameters.",
    "popular account",
    (square("gelu", "GELU", 64), square("gelu", "GELU", 768), square("swiglu", "SwiGLU", 768), square("swiglu", "SwiGLU", 64)),
)

C14 = Claim(
    "C14",
    "The identity path carries the whole output gradient to every layer.",
    "popular account; example x_0 = [1, 1], branches [.1, .2] and [.3, -.1], gradient [2, 3]",
    (
        check("Pre-LN, constant branches", "gradient (vector) at x_0 and output", "[2, 3] arrives unchanged",
              Checks("C14", ("pre_*",))),
        check("Post-LN, constant branches (d = 2, where LayerNorm passes no gradient)",
              "norm of the gradient at x_0 minus that at the output", "0",
              Checked("C14", ("post_gradient_deviation",)), Near(0, 0.01)),
    ),
)  # fmt: skip

C15 = Claim(
    "C15",
    "nn.TransformerEncoderLayer is Pre-LN with norm_first=True and Post-LN by default.",
    "PyTorch documentation",
    tuple(
        check(f"{name}", "output and input gradient against our block of the same weights, and against the other's",
              "equal to rounding, and different", Checks("C15", (f"{norm}_*",)))
        for norm, name in (("pre", "norm_first=True"), ("post", "the default"))
    ),
)  # fmt: skip

C16 = Claim(
    "C16",
    "A block maps (B, T, d) to (B, T, d), whatever the placement.",
    "popular account",
    (check("every placement there is", "blocks that change the shape of a stream", "none", Checks("C16", ("*_shape",))),),
)

CLAIMS = (C7, C13A, C13B, C14, C15, C16)
