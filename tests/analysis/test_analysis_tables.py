"""Laws of the tables: outcomes, the depth law, averages over seeds."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from synthetic_store import INITIAL, UNIGRAM, Run, layer_values, loss_curve, recorded_steps, write_study
from synthetic_studies import init_runs

from analysis import tables
from analysis.load import Study, load_study
from analysis.stats import mean_interval
from analysis.summary import exponent_text
from analysis.tables import Moment


def loaded(results: Path, runs: list[Run]) -> Study:
    write_study(results, runs)
    study = load_study(results, runs[0].study, runs[0].scale, columns=tables.DRAWN)
    assert study is not None
    return study


EDGE = 1e-4  # nats; a float32 holds the losses to 2e-7


@pytest.mark.parametrize(
    ("run", "outcome"),
    [
        (Run(final=UNIGRAM - 0.1 - EDGE), "trained"),
        (Run(final=UNIGRAM - 0.1 + EDGE), "stuck"),
        (Run(final=UNIGRAM), "stuck"),
        (Run(final=UNIGRAM + 0.1 - EDGE), "stuck"),
        (Run(final=UNIGRAM + 0.1 + EDGE), "unfinished"),
        (Run(final=INITIAL + 0.1 - EDGE), "unfinished"),
        (Run(final=INITIAL + 0.1 + EDGE), "diverged"),
        (Run(final=float("inf")), "diverged"),
        (Run(final=float("nan")), "diverged"),
        (Run(final=UNIGRAM, initial=UNIGRAM - 0.05), "stuck"),
        (Run(state="diverged"), "diverged"),
        (Run(steps=1, final=INITIAL + 1), "init"),
        (Run(steps=1, state="diverged"), "diverged"),
    ],
)
def test_outcomes_change_at_a_tenth_of_a_nat_around_the_unigram_entropy(tmp_path: Path, run: Run, outcome: str) -> None:
    run = replace(run, steps=min(run.steps, 20))
    assert list(tables.outcomes(loaded(tmp_path, [run]))["outcome"]) == [outcome]


def test_the_escape_step_is_the_first_below_the_threshold_and_null_where_there_is_none(tmp_path: Path) -> None:
    runs = [Run(steps=200, seed=seed) for seed in (0, 1)] + [Run("post", steps=200, outcome="stuck")]
    found = tables.outcomes(loaded(tmp_path, runs)).set_index("run")["escape_step"]
    for run in runs[:2]:
        loss = loss_curve(run).astype(np.float32).astype(float)
        smooth = np.array([loss[max(0, i + 1 - tables.WINDOW) : i + 1].mean() for i in range(len(loss))])
        assert found[run.name] == np.flatnonzero(smooth < np.float32(UNIGRAM) - tables.MARGIN)[0]
    assert pd.isna(found[runs[2].name])


def test_smoothing_never_crosses_runs_and_never_hides_a_nonfinite_loss() -> None:
    run = pd.Categorical(["a"] * 3 + ["b"] * 3)
    steps = pd.DataFrame({"run": run, "step": [0, 1, 2] * 2, "loss": [5.0, 3.0, np.nan, 1.0, 1.0, 4.0]})
    assert tables.smoothed(steps)["loss"].tolist() == pytest.approx([5, 4, np.nan, 1, 1, 2], nan_ok=True)


def test_moments_are_steps_that_every_complete_run_has(tmp_path: Path) -> None:
    runs = [Run(steps=100), Run(seed=1, steps=100), Run(seed=2, steps=100, outcome="diverged", state="diverged")]
    found = tables.moments(loaded(tmp_path, runs))
    common = recorded_steps(99)
    assert found == (Moment("init", 0), Moment("early", common[np.argmin(abs(common - 10))]), Moment("end", 99))


def test_a_study_of_one_step_has_one_moment(tmp_path: Path) -> None:
    assert tables.moments(loaded(tmp_path, init_runs((2, 3), 1))) == (Moment("init", 0),)


def test_the_depth_law_holds_what_was_recorded_at_the_two_ends(tmp_path: Path) -> None:
    runs = [Run(norm, depth, steps=30) for norm in ("pre", "post") for depth in (2, 5)]
    study = loaded(tmp_path, runs)
    at = tables.moments(study)
    law = tables.depth_law(tables.outcomes(study), study.layers, at).set_index(["run", "step", "quantity", "place"])["value"]
    assert len(law) == len(runs) * len(at) * 3
    for run in runs:
        steps = recorded_steps(29)
        values = layer_values(run, steps)
        for moment in at:
            i = list(steps).index(moment.step)
            for quantity, place, layer in (("grad_stream", "first", 0), ("grad_stream", "last", -1), ("grad_rel", "first", 0)):
                assert law[run.name, moment.step, quantity, place] == pytest.approx(values[quantity][i, layer], rel=1e-6)


def test_the_exponents_put_into_the_store_come_out(tmp_path: Path) -> None:
    study = loaded(tmp_path, [replace(run, noise=0.0) for run in init_runs((12, 24, 48), 3)])
    law = tables.depth_law(tables.outcomes(study), study.layers, tables.moments(study))
    found = tables.exponents(law).set_index(["variant", "quantity", "place"])
    assert found["exponent"]["pre", "grad_stream", "last"] == pytest.approx(-0.5, abs=1e-5)
    for other in (("post", "grad_stream", "last"), ("pre", "grad_stream", "first"), ("post", "grad_stream", "first")):
        assert found["exponent"][other] == pytest.approx(0.0, abs=1e-5)
    assert set(found["seeds"]) == {3}
    assert set(found["depths"]) == {(12, 24, 48)}


def test_points_far_from_a_line_are_no_power_law() -> None:
    depth = [12, 24, 48, 96]
    values = {"first": [1e-7, 1e-5, 1e-5, 1e-16], "last": [1.0, 0.6, 0.4, 0.25]}
    rows = [(place, seed, d, v) for place in values for seed in (0, 1) for d, v in zip(depth, values[place], strict=True)]
    law = pd.DataFrame(rows, columns=["place", "seed", "depth", "value"]).assign(moment="end", step=9, quantity="grad_stream")
    law = law.assign(variant="post", label="Post-LN", color="#000000", linestyle="-", warmup=0, outcome="stuck")
    found = tables.exponents(law).set_index("place")
    assert found["lawful"].to_dict() == {"first": False, "last": True}
    assert "* ± " in exponent_text(found.loc["first"], "")
    assert "*" not in exponent_text(found.loc["last"], "")


def frame(values: dict[tuple[str, int], list[float]], outcome: str = "trained") -> pd.DataFrame:
    """One series; keys are run and depth, values are at layers 0, 1, ..."""
    rows = [(run, depth, layer, v) for (run, depth), given in values.items() for layer, v in enumerate(given)]
    table = pd.DataFrame(rows, columns=["run", "depth", "layer", "value"])
    return table.assign(variant="pre", label="Pre-LN", color="#000000", linestyle="-", warmup=0, outcome=outcome)


def test_averages_are_geometric_means_over_seeds() -> None:
    found = tables.across_seeds(frame({("a", 2): [1.0, 1e-20], ("b", 2): [4.0, 1e-10]}), "layer", log=True)
    assert found["estimate"].tolist() == pytest.approx([2.0, 1e-15])
    expected = mean_interval(np.log([1.0, 4.0]))
    assert (found["low"][0], found["high"][0]) == pytest.approx((np.exp(expected.low), np.exp(expected.high)))
    assert found["seeds"].tolist() == [2, 2]


def test_no_average_crosses_outcomes() -> None:
    both = pd.concat([frame({("a", 2): [1.0]}), frame({("b", 2): [1e-12]}, "stuck")])
    found = tables.across_seeds(both, "layer", log=True).set_index("outcome")
    assert found["estimate"].to_dict() == pytest.approx({"trained": 1.0, "stuck": 1e-12})
    assert set(found["seeds"]) == {1}


def test_diverged_runs_enter_no_average() -> None:
    both = pd.concat([frame({("a", 2): [1.0]}), frame({("b", 2): [np.nan]}, "diverged")])
    assert tables.across_seeds(both, "layer", log=True)["estimate"].tolist() == [1.0]
    assert tables.across_seeds(frame({("b", 2): [1.0]}, "diverged"), "layer", log=True).empty


def test_a_nan_spoils_its_mean_but_an_absent_seed_does_not() -> None:
    found = tables.across_seeds(frame({("a", 2): [1.0, 2.0, 3.0], ("b", 2): [np.nan, 8.0]}), "layer", log=True)
    assert found["estimate"].tolist() == pytest.approx([np.nan, 4.0, 3.0], nan_ok=True)
    assert found["seeds"].tolist() == [2, 2, 1]


def test_counts_of_outcomes_add_up_and_the_fraction_is_of_all_runs(tmp_path: Path) -> None:
    runs = [
        Run("post", seed=0, steps=20, outcome="trained"),
        Run("post", seed=1, steps=20, outcome="stuck"),
        Run("post", seed=2, steps=20, outcome="unfinished"),
        Run("post", seed=3, steps=20, outcome="diverged", state="diverged"),
    ]
    (cell,) = tables.fractions(tables.outcomes(loaded(tmp_path, runs))).to_dict("records")
    assert [cell[name] for name in ("trained", "stuck", "unfinished", "diverged", "seeds")] == [1, 1, 1, 1, 4]
    assert cell["estimate"] == 0.25


def test_the_collapse_table_averages_the_norms_over_blocks_by_their_logarithms(tmp_path: Path) -> None:
    run = Run("post", 4, steps=50, outcome="stuck")
    study = loaded(tmp_path, [run])
    found = tables.collapse(tables.outcomes(study), study.layers)
    steps = recorded_steps(49)
    values = layer_values(run, steps)
    both = np.concatenate([values["norm_std_attn"][:, :-1], values["norm_std_ffn"][:, :-1]], axis=1)
    assert found["norm_std"]["value"].to_numpy() == pytest.approx(np.exp(np.log(both).mean(axis=1)), rel=1e-5)
    assert found["grad_stream"]["value"].to_numpy() == pytest.approx(values["grad_stream"][:, 0], rel=1e-6)
    assert found["token_cosine"]["value"].to_numpy() == pytest.approx(values["token_cosine"][:, -1], rel=1e-6)
