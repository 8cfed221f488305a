"""Figures over the training: loss, outcome, and how the gradient collapses. Tables in, a figure out."""

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis import plots, tables
from analysis.drawings.layers import NORM, column_titles
from analysis.layout import Page
from analysis.story import Story, averages
from analysis.style import depth_colors, outcome_key, warmup_words


def loss(story: Story) -> Figure:
    """Training loss over the steps, a row per warmup, a column per depth, with the entropies of the data."""
    warmups, depths = sorted(story.runs["warmup"].unique()), story.some_depths
    notes = [f"Training loss: trailing mean over {tables.WINDOW} steps. {averages(story, 'bands', False)} Diamonds: final "
             "validation loss of each seed. Dashed grey: cross-entropy of the validation text under the training text's byte "
             "and byte-pair frequencies.", story.note]  # fmt: skip
    page = Page(2.5 * len(depths) + 0.6, 2.4 * len(warmups) + 1.0, "Loss over the training", notes)
    axes = page.grid(len(warmups), len(depths), sharex=True, sharey=True)
    table = tables.losses(story.runs, story.study.steps)
    mean = tables.across_seeds(table, "step", log=False)
    for row_axes, warmup in zip(axes, warmups, strict=True):
        for ax, depth in zip(row_axes, depths, strict=True):
            chosen = [frame[(frame["depth"] == depth) & (frame["warmup"] == warmup)] for frame in (table, mean, story.runs)]
            single, line, runs = chosen
            plots.seeds(ax, single, "step", story.looks)
            plots.means(ax, line, "step", story.looks, bars=False)
            plots.lost(ax, single, story.looks)
            plots.finals(ax, runs, story.looks)
            plots.plain_y(ax)
            _entropies(ax, story)
        row_axes[0].set_ylabel(f"{warmup_words(int(warmup))}\nloss per token  [nats]")
    column_titles(axes, depths)
    for ax in axes[-1]:
        ax.set_xlabel("step  [updates]")
    return page.finish(story.keys())


def _entropies(ax: Axes, story: Story) -> None:
    for name in ("unigram", "bigram"):
        plots.level(ax, float(story.runs[name].median()), name)


def outcome(story: Story) -> Figure:
    """Final validation loss against depth, and under it the fraction of seeds that trained."""
    notes = [f"Trained: final validation loss below the unigram entropy by more than {tables.MARGIN} nats; stuck: within it; "
             "unfinished: above; diverged: not finite, or above the initial loss by 0.1. Above, lines: mean over the seeds of "
             "one outcome, bars: 95 % t interval, dots: single seeds. Below: bars: exact (Clopper-Pearson) 95 % interval. "
             "Series are set apart sideways.", story.note]  # fmt: skip
    page = Page(7.6, 6.6, "Where training works: final validation loss and fraction trained", notes)
    axes = page.grid(2, 1, sharex=True, height_ratios=[3, 2])
    top, bottom = axes[:, 0]
    table = story.runs.assign(value=story.runs["final_val_loss"].astype(float))
    mean = tables.across_seeds(table, "depth", log=False)
    plots.depth_axis(top, story.depths)
    plots.seeds(top, plots.apart(table, story.looks), "depth", story.looks, dots=True)
    plots.means(top, plots.apart(mean, story.looks), "depth", story.looks, bars=True)
    plots.diverged(top, story.runs, story.looks)
    plots.plain_y(top)
    _entropies(top, story)
    top.set_ylabel("final validation loss  [nats per token]")
    share = plots.apart(tables.fractions(story.runs), story.looks).assign(outcome="init")
    plots.means(bottom, share, "depth", story.looks, bars=True)
    bottom.set(ylim=(-0.06, 1.06), xlabel="depth L  [blocks]", ylabel="fraction trained  [1]")
    return page.finish(story.keys(), columns=3)


def heatmap(story: Story) -> Figure:
    """Gradient norm by layer and step for the deepest run of each variant and warmup."""
    runs = story.runs
    variants, warmups = sorted(runs["variant"].unique()), sorted(runs["warmup"].unique())
    depth = max(d for d in story.depths if runs.loc[runs["depth"] == d, "variant"].nunique() == len(variants))
    chosen = runs[runs["depth"] == depth].sort_values("seed").groupby(["variant", "warmup"], sort=True).head(1)
    values = story.study.layers[story.study.layers["run"].isin(chosen["run"])].rename(columns={"grad_stream": "value"})
    shown = values.loc[tables.drawable(values["value"]), "value"]
    norm = LogNorm(shown.min(), shown.max()) if len(shown) else LogNorm(1e-1, 1)
    notes = [f"One seed each, L = {depth}. White: 0 or not finite. {NORM}", story.note]
    page = Page(4.2 * len(variants) + 1.0, 2.7 * len(warmups) + 0.4, "Gradient norm by layer and step", notes)
    axes = page.grid(len(warmups), len(variants), sharex=True, sharey=True)
    for (i, warmup), (j, variant) in [(w, v) for w in enumerate(warmups) for v in enumerate(variants)]:
        run = chosen[(chosen["variant"] == variant) & (chosen["warmup"] == warmup)]
        if run.empty:
            axes[i, j].set_title("no such run", color="#555555")
            continue
        row = run.iloc[0]
        axes[i, j].set_title(f"{story.looks[variant, warmup].label}, seed {row['seed']}: {row['outcome']}")
        plots.heat(axes[i, j], values[values["run"] == row["run"]], norm)
    for ax in axes[:, 0]:
        ax.set_ylabel(r"stream point $\ell$ (0 = embedding)")
    for ax in axes[-1]:
        ax.set_xlabel("step  [updates]")
    page.body.colorbar(
        ScalarMappable(norm, plots.HEAT),
        ax=axes,
        label=r"$\|\partial\,\mathrm{loss}/\partial x_\ell\|$  [nats]",
        pad=0.02,
        aspect=30,
    )
    return page.finish([])


def collapse(story: Story) -> Figure:
    """The first point's gradient over the steps beside token cosine and the norms' input std: a row per series."""
    quantities = tables.collapse(story.runs, story.study.layers)
    labels = {
        "grad_stream": r"$\|\partial\,\mathrm{loss}/\partial x_0\|$  [nats]",
        "token_cosine": "token cosine at point $L$  [1]",
        "norm_std": "std of the norms' input  [1]",
    }
    notes = [
        f"{averages(story, 'bands', True)} Token cosine (drawn as a plain mean): between two tokens of a sequence; 1 = all "
        f"tokens alike. Std of the norms' input: geometric mean over all norms of the blocks.",
        NORM,
        story.note,
    ]
    page = Page(11, 2.0 * len(story.looks) + 1.2, "How the gradient collapses, and what goes with it", notes)
    axes = page.grid(len(story.looks), 3, sharex=True, sharey="col")
    colors = depth_colors(story.depths)
    end = float(story.study.layers["step"].max()) + 1
    for column, (name, label) in zip(axes.T, labels.items(), strict=True):
        table = quantities[name]
        mean = tables.across_seeds(table, "step", log=name != "token_cosine")
        for ax, (series, look) in zip(column, story.looks.items(), strict=True):
            mine = [f[(f["variant"] == series[0]) & (f["warmup"] == series[1])] for f in (table, mean)]
            single, average = (frame.assign(step=frame["step"] + 1) for frame in mine)  # as on plots.step_axis
            plots.by_value(ax, single, average, ("step", "depth"), colors)
            ax.set_ylabel(f"{look.label}\n{label}" if name == "grad_stream" else label)
            plots.step_axis(ax, 0.9, end * 1.1)
            if name != "token_cosine":
                plots.not_shown(ax, mine[0]["value"])
        if name == "token_cosine":
            plots.plain_y(column[0])
            column[0].set_ylim(min(-0.02, float(table["value"].min())), 1.03)
        else:
            plots.log_y(column[0], table["value"], decades=0.5)
    for ax in axes[-1]:
        ax.set_xlabel("step  [updates]")
    met = [name for name in tables.OUTCOMES if (story.runs["outcome"] == name).any()]
    depth_keys = [Line2D([], [], color=color, label=f"L = {depth}") for depth, color in colors.items()]
    return page.finish([*depth_keys, *(outcome_key(name, line=True) for name in met)], columns=len(depth_keys))
