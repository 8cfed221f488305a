"""Laws of the figure of attention logits: the largest of all blocks, rates and placements apart, a colour per QK-norm."""

import numpy as np
import pytest
from inspected import axes_of, drawn, told, words
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from synthetic_memory import Case
from synthetic_store import Run

from analysis.drawings.logits import logit_growth
from analysis.style import OKABE_ITO

STEPS = (0, 9, 99, 299)
RATES = (1e-3, 1e-2)


def case(run: Run) -> Case:
    """Without QK-norm the logit of block 3 is step + 1, at the higher rate ten times that; with it 2; of others 0.5."""
    rate, qk = run.override["optim.lr"], run.override["norm.qk"]
    layers = {}
    for step in STEPS:
        logit = np.append(np.full(run.depth, 0.5), np.nan)
        logit[3] = 2.0 if qk != "none" else (step + 1.0) * (10 if rate == RATES[1] else 1)
        layers |= {(step, "attn_logit_max"): logit, (step, "attn_entropy"): np.append(np.linspace(1, 3, run.depth), np.nan)}
    return Case(run, layers, {(step, "loss"): 3.0 for step in range(1, 300)})


def cases(*norms: str, outcome: str = "trained") -> list[Case]:
    state = "diverged" if outcome == "diverged" else "complete"
    return [
        case(Run(norm, 12, 0, seed, 300, outcome, state, "logit_growth", override={"optim.lr": rate, "norm.qk": qk}))
        for norm in norms for rate in RATES for qk in ("none", "rmsnorm") for seed in range(3)
    ]  # fmt: skip


def ends(ax: Axes) -> dict[str, float]:
    """Where the means end, by colour."""
    return {to_hex(line.get_color()): float(line.get_ydata()[-1]) for line in ax.lines if line.get_zorder() == 3}


def test_a_panel_holds_one_rate_and_placement_and_the_largest_logit_of_all_blocks() -> None:
    axes = axes_of(drawn(logit_growth, told("logit_growth", cases("pre", "odd"))))
    assert [ax.get_title() for ax in axes[:4]] == [f"{n}\nrate {r:g}" for r in RATES for n in ("Odd-LN", "Pre-LN")]
    none, rmsnorm = (to_hex(color) for color in OKABE_ITO[:2])
    assert ends(axes[1]) == pytest.approx({none: 300.0, rmsnorm: 2.0})
    assert ends(axes[3]) == pytest.approx({none: 3000.0, rmsnorm: 2.0})
    assert list(ends(axes[4]).values()) == pytest.approx([2.0, 2.0])  # the mean entropy


def test_flat_attention_and_the_entropies_of_the_text_are_named() -> None:
    axes = axes_of(drawn(logit_growth, told("logit_growth", cases("pre"))))
    assert "flat" in words(axes[2])
    assert {"unigram", "bigram"} <= set(words(axes[4]).split("\n"))


def test_diverged_runs_are_counted_and_not_averaged() -> None:
    found = cases("pre")
    found += cases("odd", outcome="diverged")
    axes = axes_of(drawn(logit_growth, told("logit_growth", found)))
    assert "diverged 3/3" in words(axes[0])
    assert ends(axes[0]) == {}
