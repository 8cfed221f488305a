"""Claims on what trains, at what depth and with what warmup: C6, C10, C12a, C21, C25."""

from typing import Any

from analysis.evidence.counts import Outcomes, WarmupBenefit
from analysis.evidence.measures import Apart, Exponent, Mean
from analysis.evidence.quantities import OfRun, OfStep, OverBlocks, Ratio, contrast, log_mean, share_in_use
from analysis.evidence.record import LAST, AtLeast, UpTo
from analysis.evidence.verdicts import Above, Always, AtMost, Near, Never, Rule
from analysis.ledger.entry import Claim, Test
from analysis.ledger.gradients import COLD, COLLAPSE, IN_DEPTH, WARM, XIONG

TRAINS = "share of runs that end below the unigram entropy by .1 nats"


def trains(when: str, study: str, where: dict[str, Any], rule: Rule) -> Test:
    measure = Outcomes("trained", across=("optim.lr",) if "optim.lr" in where else ())
    figure = "outcome" if study == "depth_warmup" else "claims"
    return Test(when, study, TRAINS, "share", f"{rule} trains", measure, rule, where, figure)


C6A = Claim(
    "C6a",
    "Post-LN cannot be trained without warmup.",
    f"popular reading of {XIONG}, section 3",
    (
        trains("rate 2e-3, 6 to 96 blocks", "depth_warmup", {"norm": "post"} | COLD, Never()),
        trains("rates up to 1e-3, 12 blocks", "lr_sensitivity", {"norm": "post", "optim.lr": UpTo(1e-3)} | COLD, Never()),
    ),
)
C6B = Claim(
    "C6b",
    "Pre-LN trains without warmup at 100 layers.",
    f"popular reading of {XIONG}, section 3; published to 12 layers",
    (trains("rate 2e-3, 48 and 96 blocks", "depth_warmup", {"norm": "pre", "depth": AtLeast(48)} | COLD, Always()),),
)

DROP, ANGLE = "rise of the held-out loss without a block", "angular distance between a block's input and output"
USED = {"layer_drop": DROP, "angular_distance": ANGLE}


DEPTHS = (12, 24, 48)


def even(column: str, depth: int) -> Test:
    return Test(
        when=f"{depth} blocks, {'what the loss loses' if column == 'layer_drop' else 'how far a block turns the stream'}",
        study="effective_depth", where={"norm": "pre", "outcome": "trained", "depth": depth},
        quantity=f"{USED[column]}: (late - early)/(|late| + |early|), means over the last and the first third of the blocks",
        unit="1", prediction="equal within a factor of 2", measure=Mean(OverBlocks(contrast, column, LAST)),
        rule=Near(0, 1 / 3), figure="effective_depth",
    )  # fmt: skip


def fewer(column: str, depth: int) -> Test:
    return Test(
        when=f"{depth} blocks, by {'what the loss loses' if column == 'layer_drop' else 'how far the stream turns'}",
        study="effective_depth", where={"norm": ("pre", "post"), "outcome": "trained", "depth": depth},
        quantity=f"share of blocks in use, (Σ|v|)²/(L Σv²) of the {USED[column]}, Post-LN minus Pre-LN", unit="1",
        prediction="Post-LN uses fewer", measure=Apart(OverBlocks(share_in_use, column, LAST), "norm", "post", "pre"),
        rule=AtMost(0), figure="effective_depth",
    )  # fmt: skip


C10A = Claim(
    "C10a",
    "Pre-LN trains all its layers equally.",
    "popular account; against it Sun et al. 2025 (Curse of Depth), arXiv:2502.05795",
    tuple(even(column, depth) for column in USED for depth in DEPTHS),
)
C10B = Claim(
    "C10b",
    "Post-LN limits the effective depth, Pre-LN does not: fewer of Post-LN's blocks are in use.",
    "popular account",
    tuple(fewer(column, depth) for column in USED for depth in DEPTHS),
)


def without_norm(depth: int) -> Test:
    where = {"norm": "pre", "model.final_norm": False, "depth": depth}
    return trains(f"{depth} blocks, 100 steps: none without a final norm trains", "final_norm", where, Never())


C12A = Claim(
    "C12a",
    "Pre-LN strictly needs a final norm.",
    f"popular reading of {XIONG}, section 3",
    (
        *(without_norm(depth) for depth in (12, 24, 48, 96)),
        Test(
            when="48 blocks, 100 steps: one without a final norm ends higher by .1 nats", study="final_norm",
            where={"norm": "pre", "depth": 48}, quantity="final validation loss, without minus with a final norm",
            unit="nats", prediction="worse by .1 nats",
            measure=Apart(OfRun("final_val_loss"), "model.final_norm", False, True), rule=Above(0.1),
        ),
    ),
)  # fmt: skip


def drift(when: str, norm: str, optimizer: str, rule: Rule, words: str) -> Test:
    return Test(
        when=when, study="deepnet_update", where={"norm": norm, "optim.name": optimizer},
        quantity="change of the output by the first update, ‖F(θ_1) - F(θ_0)‖/‖F(θ_0)‖ (norms)", unit=IN_DEPTH,
        prediction=words, measure=Exponent(OfStep("function_change", 1)), rule=rule,
    )  # fmt: skip


C21A = Claim(
    "C21a",
    "In the first steps the model's update grows with depth under Post-LN, and not under DeepNorm.",
    "Wang et al. 2022 (DeepNet), arXiv:2203.00555, section 3 and figure 5",
    (
        drift("Post-LN, AdamW", "post", "adamw", Above(0.25), "grows faster than L^1/4"),
        drift("Post-LN, SGD", "post", "sgd", Above(0.25), "grows faster than L^1/4"),
        drift("DeepNorm, AdamW", "deepnorm", "adamw", Near(0, 0.25), "L^0"),
        drift("DeepNorm, SGD", "deepnorm", "sgd", Near(0, 0.25), "L^0"),
    ),
    whole=True,
)
C21B = Claim(
    "C21b",
    "Without warmup the inputs of Post-LN's norms become far larger than at initialisation.",
    "Wang et al. 2022 (DeepNet), arXiv:2203.00555, figure 4",
    tuple(
        Test(
            when=f"{name}, step 40", study="collapse", where=COLLAPSE,
            quantity=f"std of the {name} norm's input, geometric mean over blocks, over that at initialisation", unit="1",
            prediction="at least three times as large", rule=Above(3),
            measure=Mean(Ratio(OverBlocks(log_mean, column, 40), OverBlocks(log_mean, column, 0)), log=True), figure="rate",
        )
        for name, column in (("attention", "norm_std_attn"), ("feed-forward", "norm_std_ffn"))
    ),
)  # fmt: skip


def benefit(when: str, norms: tuple[str, ...], words: str) -> Test:
    names = " minus that for ".join({"post": "Post-LN", "pre": "Pre-LN"}[norm] for norm in norms)
    return Test(
        when=when, study="lr_sensitivity", where={"norm": ("pre", "post"), "optim.lr": AtLeast(1e-3)},
        quantity=f"learning-rate sensitivity without warmup minus with warmup, for {names}, at rates that finish",
        unit="nats", prediction=words, measure=WarmupBenefit(norms), rule=Above(0),
    )  # fmt: skip


C25A = Claim(
    "C25a",
    "Warmup decides whether Post-LN trains, and not whether Pre-LN does.",
    f"{XIONG}, section 3.1",
    (
        trains("rate 2e-3: with warmup Post-LN trains", "depth_warmup", {"norm": "post"} | WARM, Always()),
        trains("rate 2e-3: without it Pre-LN trains", "depth_warmup", {"norm": "pre"} | COLD, Always()),
        Test(
            "rate 2e-3: without it Post-LN does not, in half of the runs or more", "depth_warmup", TRAINS, "share",
            "at most half train", Outcomes("trained"), AtMost(0.5), {"norm": "post"} | COLD, "outcome",
        ),
    ),
    whole=True,
)  # fmt: skip
C25B = Claim(
    "C25b",
    "Warmup lowers the sensitivity to the learning rate, of Post-LN most.",
    "Wortsman et al. 2023, arXiv:2309.14322, section 2, for the measure",
    (
        benefit("12 blocks, rates from 1e-3: that of Post-LN", ("post",), "above 0"),
        benefit("12 blocks, rates from 1e-3: and more than that of Pre-LN", ("post", "pre"), "above 0"),
    ),
    whole=True,
)

CLAIMS = (C6A, C6B, C10A, C10B, C12A, C21A, C21B, C25A, C25B)
