"""Tables that figures and claims are made of. Every table names its grouping columns; no average crosses outcomes."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.cells import groups
from analysis.laws import exponent
from analysis.load import Columns, Study
from analysis.stats import Interval, fraction_interval, geometric_mean_interval, mean_interval

MARGIN = 0.1  # nats below (above) the unigram entropy from which a run counts as trained (unfinished)
POINTS = 200  # of a loss curve that is drawn
WINDOW = 10  # recorded steps of the trailing mean over the training loss
EARLY = 0.1  # share of the steps after which "early" is looked at
STRAY = 3  # factor: points that stray further from their line are no power law
FIT_FROM = 12  # blocks from which the exponent is fitted; all depths are fitted beside it
OUTCOMES = ("trained", "stuck", "unfinished", "diverged", "init")
SERIES = ["variant", "label", "color", "linestyle", "warmup"]
CELL = [*SERIES, "depth"]
STEP_COLUMNS = ("loss",)
LAYER_COLUMNS = ("grad_stream", "grad_rel", "stream_var", "token_cosine", "norm_std_attn", "norm_std_ffn")
DRAWN = Columns(STEP_COLUMNS, LAYER_COLUMNS)  # what figures read, and what the reference keeps
LAW = (("grad_stream", "first"), ("grad_stream", "last"), ("grad_rel", "first"))  # grad_rel is 1 at the last point


PLACES: dict[str, Callable[[pd.Series], pd.Series]] = {  # layer by depth: points of the stream, and blocks
    "first": lambda depth: 0 * depth,
    "middle": lambda depth: depth // 2,
    "last": lambda depth: depth,
    "first block": lambda depth: 0 * depth,
    "last block": lambda depth: depth - 1,
}


@dataclass(frozen=True)
class Moment:
    """A recorded step that every complete run of a study has."""

    name: str
    step: int


def outcomes(study: Study) -> pd.DataFrame:
    """`runs` with `outcome`, `escape_step` and `train_steps`.

    Against the unigram entropy, the final validation loss is below by more than MARGIN: trained; within it: stuck; above and
    finite: unfinished; a diverged run, or one that ends above its initial loss by more than MARGIN: diverged. A run of one
    step is init.
    escape_step : first step where the smoothed training loss is below the unigram entropy by MARGIN; null where it never was.
    """
    runs = study.runs.copy()
    final, unigram = runs["final_val_loss"].astype(float), runs["unigram"].astype(float)
    runs["train_steps"] = [json.loads(config)["train"]["steps"] for config in runs["config"]]
    rules = [  # the first that holds
        ("diverged", runs["state"] == "diverged"),
        ("init", runs["train_steps"] <= 1),
        ("diverged", ~np.isfinite(final)),
        ("trained", final < unigram - MARGIN),
        ("stuck", final <= unigram + MARGIN),
        ("diverged", final > runs["initial_loss"].astype(float) + MARGIN),
    ]
    runs["outcome"] = "unfinished"
    for name, holds in reversed(rules):
        runs.loc[holds, "outcome"] = name
    below = smoothed(study.steps)
    below = below[below["loss"] < attach(below, runs, ["unigram"])["unigram"] - MARGIN]
    first = below.groupby("run", observed=False)["step"].min().reindex(runs["run"])
    runs["escape_step"] = first.astype("Int32").to_numpy()
    return runs


def smoothed(steps: pd.DataFrame) -> pd.DataFrame:
    """Trailing mean of the training loss over WINDOW steps of a run; NaN where the loss is."""
    out = steps[["run", "step", "loss"]].sort_values(["run", "step"], ignore_index=True)
    rolled = out.groupby("run", observed=True)["loss"].rolling(WINDOW, min_periods=1).mean().to_numpy()
    out["loss"] = np.where(np.isfinite(out["loss"]), rolled, out["loss"])
    return out


def attach(frame: pd.DataFrame, runs: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """`frame` with columns of each row's run."""
    row = pd.Index(runs["run"]).get_indexer(pd.Index(frame["run"]))
    return frame.assign(**{column: _compact(runs[column]).take(row) for column in columns})


def _compact(column: pd.Series) -> Any:
    """Numbers as they are, words as categories: a table of a million rows repeats few of them."""
    return column.to_numpy() if pd.api.types.is_numeric_dtype(column) else pd.Categorical(column)


def moments(study: Study) -> tuple[Moment, ...]:
    """Initialisation, an early step (a tenth of the training) and the last, of those that all complete runs recorded."""
    complete = study.runs.loc[study.runs["state"] == "complete", "run"]
    recorded = study.layers[["run", "step"]].drop_duplicates()
    if len(complete):
        count = recorded.loc[recorded["run"].isin(complete), "step"].value_counts()
        recorded = pd.DataFrame({"step": count.index[count == len(complete)]})
    step = np.sort(recorded["step"].unique())
    if len(step) == 0:
        return ()
    total = max(json.loads(config)["train"]["steps"] for config in study.runs["config"])
    early = int(step[np.argmin(np.abs(step - EARLY * total))])
    found = {0: "init"} if step[0] == 0 else {}
    for name, at in (("end", int(step[-1])), ("early", early)):
        found.setdefault(at, name)
    return tuple(Moment(found[at], at) for at in sorted(found))


def depth_law(runs: pd.DataFrame, layers: pd.DataFrame, at: tuple[Moment, ...]) -> pd.DataFrame:
    """Gradient norms at the first and the last stream point, one row per run, moment, quantity and place."""
    chosen = layers[layers["step"].isin([moment.step for moment in at])]
    chosen = attach(chosen, runs, [*CELL, "seed", "outcome"])
    name = {moment.step: moment.name for moment in at}
    rows = []
    for quantity, place in LAW:
        part = at_place(chosen, place)
        keep = part[["run", *CELL, "seed", "outcome", "step"]]
        rows.append(keep.assign(moment=part["step"].map(name), quantity=quantity, place=place, value=part[quantity]))
    return pd.concat(rows, ignore_index=True)


def exponents(law: pd.DataFrame) -> pd.DataFrame:
    """Exponent of the value in depth, one row per moment, quantity, place, series and outcome; diverged runs have none.

    `exponent`, `low`, `high`, `seeds`, `lawful` (the points stray from their line by less than the factor STRAY) over depths
    from FIT_FROM; the same with `_all` over all depths. NaN: not fitted.
    """
    by = ["moment", "step", "quantity", "place", *SERIES, "outcome"]
    rows = []
    for key, group in groups(law[law["outcome"] != "diverged"], by):
        row = dict(zip(by, key, strict=True))
        for suffix, start in (("", FIT_FROM), ("_all", 0)):
            fit = exponent(group["depth"], group["value"], group["seed"], from_x=start, fewest=3, fewest_seeds=1)
            found = fit.interval or Interval(np.nan, np.nan, np.nan)
            row |= {f"exponent{suffix}": found.estimate, f"low{suffix}": found.low, f"high{suffix}": found.high}
            row |= {f"seeds{suffix}": fit.seeds, f"depths{suffix}": tuple(int(depth) for depth in fit.points)}
            row[f"lawful{suffix}"] = fit.stray < STRAY
        rows.append(row | {"points": len(group), "undrawable": int((~drawable(group["value"])).sum())})
    return pd.DataFrame(rows)


def at_place(layers: pd.DataFrame, place: str) -> pd.DataFrame:
    """The rows, of a table with columns `layer` and `depth`, at one of PLACES."""
    return layers[layers["layer"] == PLACES[place](layers["depth"])]


def drawable(value: pd.Series) -> pd.Series:
    """True where a logarithmic axis can show the value."""
    return value.gt(0) & value.lt(np.inf)


def profile(runs: pd.DataFrame, layers: pd.DataFrame, quantity: str, step: int) -> pd.DataFrame:
    """One quantity over the layers at one step, one row per run and layer, columns `layer` and `value`."""
    part = layers.loc[layers["step"] == step, ["run", "layer", quantity]].rename(columns={quantity: "value"})
    return attach(part, runs, [*CELL, "seed", "outcome"])


def over_blocks(runs: pd.DataFrame, layers: pd.DataFrame, quantity: str, how: str) -> pd.DataFrame:
    """The "max" or the "mean" of a block column over the blocks, columns `step` and `value`; a row per run and step."""
    block = layers[layers["layer"] < attach(layers[["run"]], runs, ["depth"])["depth"].to_numpy()]
    by_step = block.groupby(["run", "step"], observed=True)[quantity]
    found = by_step.max(skipna=False) if how == "max" else by_step.mean(skipna=False)
    return attach(found.rename("value").reset_index(), runs, [*CELL, "seed", "outcome"])


def losses(runs: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Smoothed training loss, columns `step` and `value`; a row per run and step, or every k-th for about POINTS a run."""
    every = max(1, int(steps["step"].max()) // POINTS)
    kept = smoothed(steps)
    kept = kept[kept["step"] % every == 0]
    return attach(kept.rename(columns={"loss": "value"}), runs, [*CELL, "seed", "outcome"])


def collapse(runs: pd.DataFrame, layers: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """What goes with a vanishing gradient, by step: the first point's gradient, token cosine at the last point, and the
    geometric mean over all norms of the std of their input."""
    columns = ["run", "step", "layer"]
    depth = attach(layers[["run"]], runs, ["depth"])["depth"].to_numpy()
    first = layers.loc[layers["layer"] == 0, [*columns, "grad_stream"]].rename(columns={"grad_stream": "value"})
    last = layers.loc[layers["layer"] == depth, [*columns, "token_cosine"]].rename(columns={"token_cosine": "value"})
    block = layers.loc[layers["layer"] < depth, [*columns, "norm_std_attn", "norm_std_ffn"]]
    with np.errstate(divide="ignore", invalid="ignore"):
        log = (np.log(block["norm_std_attn"].astype(float)) + np.log(block["norm_std_ffn"].astype(float))) / 2
    mean = block.assign(value=log).groupby(["run", "step"], observed=True)["value"].mean(skipna=False)
    std = np.exp(mean).reset_index()
    return {
        name: attach(part, runs, [*CELL, "seed", "outcome"])
        for name, part in (("grad_stream", first), ("token_cosine", last), ("norm_std", std))
    }


def across_seeds(frame: pd.DataFrame, x: str, *, log: bool) -> pd.DataFrame:
    """Mean over seeds of `value` at each x, per cell and outcome: columns estimate, low, high, seeds.

    log : geometric means. Diverged runs are left out: there is nothing to average. A NaN makes its mean NaN.
    """
    by = [*SERIES, "outcome"] if x == "depth" else [*CELL, "outcome"]
    parts = []
    for key, group in groups(frame[frame["outcome"] != "diverged"], by):
        run, (column, places) = pd.factorize(group["run"])[0], pd.factorize(group[x], sort=True)
        wide = np.full((run.max() + 1, len(places)), np.nan)
        present = np.zeros(wide.shape, bool)
        wide[run, column], present[run, column] = group["value"], True
        part = pd.DataFrame(_columnwise(wide, present, log))
        part[x] = places
        for name, value in zip(by, key, strict=True):
            part[name] = value
        parts.append(part)
    empty = pd.DataFrame(columns=[*by, x, "estimate", "low", "high", "seeds"])
    return pd.concat(parts, ignore_index=True) if parts else empty


def _columnwise(wide: np.ndarray, present: np.ndarray, log: bool) -> dict[str, np.ndarray]:
    interval = geometric_mean_interval if log else mean_interval
    out = {name: np.full(wide.shape[1], np.nan) for name in ("estimate", "low", "high")}
    for pattern in np.unique(present, axis=1).T:
        at = (present == pattern[:, None]).all(axis=0)
        found = interval(wide[pattern][:, at])
        for name, values in out.items():
            values[at] = getattr(found, name)
    return out | {"seeds": present.sum(axis=0)}


def fractions(runs: pd.DataFrame) -> pd.DataFrame:
    """Share of trained runs per cell with its exact interval, and the counts of every outcome."""
    rows = []
    for key, group in groups(runs, CELL):
        counts = {name: int((group["outcome"] == name).sum()) for name in OUTCOMES}
        share = fraction_interval(counts["trained"], len(group))
        escape = group["escape_step"].dropna()
        rows.append(
            dict(zip(CELL, key, strict=True))
            | {"estimate": share.estimate, "low": share.low, "high": share.high, "seeds": len(group)}
            | counts
            | {
                "escape_first": int(escape.min()) if len(escape) else pd.NA,
                "escape_last": int(escape.max()) if len(escape) else pd.NA,
            }
        )
    return pd.DataFrame(rows)
