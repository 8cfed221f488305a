"""Made-up runs in which the measure of a ledger entry comes out as predicted, or not."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from synthetic_memory import END, Case, Memory, study
from synthetic_store import STYLES, Run
from synthetic_values import Layers, Steps, curve, plant

from analysis.evidence import quantities
from analysis.evidence.counts import Checked, Checks, Outcomes, WarmupBenefit
from analysis.evidence.measures import Apart, DepthLaw, Exponent, LayerLaw, Mean, Outside
from analysis.evidence.record import ALIAS, AtLeast, UpTo
from analysis.evidence.verdicts import Above, Always, AtMost, Law, Near
from analysis.ledger import entry

DEPTHS = (6, 9, 12, 18, 24, 36, 48, 68, 96)
SEVERAL = {
    Exponent: (6, 12, 24, 48, 96),
    DepthLaw: (6, 12, 18, 24, 48, 96),
    Outcomes: (6, 96),
}  # others look at the deepest network only
SEEDS = 3
RATES = (1e-3, 3e-3, 1e-2)
NOISE = 1e-3  # relative, of every value


def memory(test: entry.Test, found: list[Case]) -> Memory:
    return Memory({test.study: study(test.study, found)})


def accepted(test: entry.Test) -> float:
    rule = test.rule
    if isinstance(rule, Near):
        return rule.value
    factor = isinstance(test.measure, Mean) and test.measure.log
    if isinstance(rule, Above):
        return 2 * rule.value if factor else rule.value + 0.5
    assert isinstance(rule, AtMost)
    return rule.value / 2 if factor else rule.value - 0.2


def refused(test: entry.Test) -> list[float]:
    rule = test.rule
    if isinstance(rule, Near):
        beyond = [rule.value - 2.5 * rule.tolerance - 0.01, rule.value + 2.5 * rule.tolerance + 0.01]
        return [value for value in beyond if value > 0 or not _positive(test)]
    factor = isinstance(test.measure, Mean) and test.measure.log
    if isinstance(rule, Above):
        return [rule.value / 2] if factor else [rule.value - 0.5]
    assert isinstance(rule, AtMost)
    return [2 * rule.value] if factor else [rule.value + 0.2]


def _positive(test: entry.Test) -> bool:
    measure = test.measure
    return (
        isinstance(measure, Mean)
        and isinstance(measure.of, quantities.OverBlocks)
        and measure.of.how is quantities.mean_square
    )


def runs(test: entry.Test, depths: tuple[int, ...] = (), seeds: int = SEEDS) -> list[Run]:
    depths = depths or SEVERAL.get(type(test.measure), (12, 48))
    where, across = dict(test.where), getattr(test.measure, "across", ())
    depths = _choices("depth", where.pop("depth", depths), across) or depths
    through = getattr(test.measure, "through", None)
    depths = (*depths, through) if through else depths
    outcome = where.pop("outcome", "trained")
    if isinstance(test.measure, WarmupBenefit):
        where |= {"warmup": (0, 50), "optim.lr": RATES}
    elif isinstance(test.measure, Apart) and test.measure.key not in where:
        where[test.measure.key] = (test.measure.plus, test.measure.minus)
    keys = [_choices(key, wanted, across) for key, wanted in where.items()]
    found = []
    for values in product(*keys):
        config = {ALIAS.get(key, key): value for key, value in zip(where, values, strict=True)}
        norm = str(config.pop("norm.name", "pre"))
        if norm not in STYLES:
            config["norm.name"] = norm
        one = Run(norm if norm in STYLES else "odd", steps=END + 1, study=test.study, outcome=outcome,
                  warmup=int(config.pop("schedule.warmup", 0)), override=config)  # fmt: skip
        found += [replace(one, depth=depth, seed=seed) for depth in depths for seed in range(seeds)]
    return found


def _choices(key: str, wanted: Any, across: tuple[str, ...]) -> tuple[Any, ...]:
    if isinstance(wanted, AtLeast):
        return tuple(depth for depth in DEPTHS if depth >= wanted.value) if key == "depth" else (int(wanted.value),)
    if isinstance(wanted, UpTo):
        return tuple(value for value in (DEPTHS if key == "depth" else RATES) if value <= wanted.value)
    if isinstance(wanted, tuple):
        return wanted if key in across or key == "depth" else wanted[:1]
    return (wanted,)


def cases(test: entry.Test, value: float, **options: Any) -> list[Case]:
    """Runs in which the test's measure is this number."""
    measure, found = test.measure, []
    for run in runs(test, **options):
        L, target = run.depth, value
        if isinstance(measure, Exponent):
            target = 0.2 * L**value
        if isinstance(measure, Apart):
            path = measure.key if measure.key in run.override else ALIAS.get(measure.key, measure.key)
            target = 0.5 + (value if run.override.get(path, run.norm) == measure.plus else 0.0)
        quantity = measure.of
        layers, steps = plant(quantity, target, L)
        found.append(_case(run, layers, steps))
    return found


def law_cases(test: entry.Test, law: Callable[[np.ndarray], np.ndarray], **options: Any) -> list[Case]:
    """Runs in which the value of a choice of law is this function of depth, or of x inside the network."""
    measure, found = test.measure, []
    for run in runs(test, **options):
        if isinstance(measure, LayerLaw):
            layers, steps = curve(measure.of, law, run.depth), {}
        else:
            layers, steps = plant(measure.of, float(law(np.array(float(run.depth)))), run.depth)
        found.append(_case(run, layers, steps))
    return found


def outside_cases(test: entry.Test, slope: float, **options: Any) -> list[Case]:
    """Runs in which the square of the column is 1 + slope l."""
    found = []
    for run in runs(test, **options):
        value = np.sqrt(1 + slope * np.arange(run.depth + 1))
        found.append(_case(run, {(test.measure.step, test.measure.column): value}, {}))
    return found


def benefit_cases(test: entry.Test, benefit: Mapping[str, float], **options: Any) -> list[Case]:
    """Runs in which warmup takes this much off the learning-rate sensitivity of each placement.

    The best rate ends at 2; without warmup (with it, where the benefit is negative) each of the other two ends higher by 3/2
    of the benefit, so the mean over three rates is higher by the benefit.
    """
    found = []
    for run in runs(test, **options):
        worse = run.warmup == 0 if benefit[run.norm] > 0 else run.warmup > 0
        excess = 1.5 * abs(benefit[run.norm]) if worse and run.override["optim.lr"] != RATES[0] else 0.0
        found.append(_case(run, {}, {(0, "final_val_loss"): 2 + excess}))
    return found


def outcome_cases(test: entry.Test, outcomes: Callable[[Run], str], **options: Any) -> list[Case]:
    found = []
    for run in runs(test, **options):
        outcome = outcomes(run)
        state = "diverged" if outcome == "diverged" else "complete"
        found.append(Case(replace(run, outcome=outcome, state=state), {}, {}))
    return found


def _case(run: Run, layers: Layers, steps: Steps) -> Case:
    rng = np.random.default_rng([run.seed, run.depth, run.warmup])
    noisy = {key: value_L * np.exp(NOISE * rng.normal(size=value_L.shape)) for key, value_L in layers.items()}
    single = {key: value * float(np.exp(NOISE * rng.normal())) for key, value in steps.items()}
    return Case(run, noisy, single, single.pop((0, "final_val_loss"), None))


def obeying(test: entry.Test) -> Memory:
    """A store in which the entry's prediction is true."""
    measure = test.measure
    if isinstance(measure, Checks):
        return Memory(checks=checks(measure, 0.0))
    if isinstance(measure, Checked):
        return Memory(checks=checks(measure, accepted(test) * measure.unit))
    return memory(test, obeying_cases(test))


def obeying_cases(test: entry.Test, **options: Any) -> list[Case]:
    """Runs of which the entry's prediction is true. options : depths, seeds."""
    measure, rule = test.measure, test.rule
    if isinstance(measure, Outcomes):
        word = measure.outcome if isinstance(rule, Always) else "stuck"
        return outcome_cases(test, lambda _: word, **{"seeds": 5} | options)
    if isinstance(measure, WarmupBenefit):
        return benefit_cases(test, {"post": 0.9, "pre": 0.2}, **options)
    if isinstance(measure, Outside):
        return outside_cases(test, 0.8, **options)
    law = LAWS[rule.name, rule.sign] if isinstance(rule, Law) else None
    return law_cases(test, law, **options) if law else cases(test, accepted(test), **options)


def breaking(test: entry.Test) -> Iterator[Memory]:
    """Stores in which it is not."""
    measure, rule = test.measure, test.rule
    if isinstance(measure, Checks):
        yield Memory(checks=checks(measure, 1.0))
        yield Memory(checks=checks(measure, float("nan")))
    elif isinstance(measure, Checked):
        yield from (Memory(checks=checks(measure, value * measure.unit)) for value in refused(test))
    elif isinstance(measure, Outcomes):
        good, bad = (measure.outcome, "stuck") if isinstance(rule, Always) else ("stuck", measure.outcome)
        first = runs(test)[0]
        yield memory(test, outcome_cases(test, lambda run: bad if run == first or isinstance(rule, AtMost) else good))
    elif isinstance(measure, WarmupBenefit):
        yield memory(test, benefit_cases(test, {"post": 0.0 if len(measure.norms) == 2 else -0.3, "pre": 0.5}))
    elif isinstance(measure, Outside):
        yield from (memory(test, outside_cases(test, slope)) for slope in (0.4, 1.7))
    elif isinstance(rule, Law):
        yield from (memory(test, law_cases(test, law)) for law in WRONG[rule.name, rule.sign])
    else:
        assert isinstance(rule, Near | Above | AtMost)
        yield from (memory(test, cases(test, value)) for value in refused(test))


LAWS: dict[tuple[str, int], Callable[[np.ndarray], np.ndarray]] = {
    ("exponential", -1): lambda x: np.exp(-0.1 * x),
    ("logarithmic", 1): lambda x: 1 + 2 * np.log(x),
}
WRONG: dict[tuple[str, int], list[Callable[[np.ndarray], np.ndarray]]] = {
    ("exponential", -1): [
        lambda x: 1 / x,
        lambda x: np.exp(-0.01 * x),
        lambda x: 9 * x**-3.0,
        lambda x: np.exp(0.05 * x),
    ],
    ("logarithmic", 1): [lambda x: x**1.0, lambda x: np.exp(0.05 * x), lambda x: 9 - np.log(x)],
}


def checks(measure: Checks | Checked, measured: float) -> list[dict[str, Any]]:
    """Two exact checks that fit the measure's patterns, expected at 0, and one of another claim."""
    names = [name.replace("*", tag) for name in measure.names for tag in ("a", "b")]
    rows = [{"id": measure.id, "name": name, "expected": 0.0, "measured": measured, "tolerance": 0.1} for name in names]
    return [*rows, {"id": "C99", "name": names[0], "expected": 0.0, "measured": 7.0, "tolerance": 0.1}]


def spoiled(found: list[Case], seed: int, value: float) -> list[Case]:
    """The cases with every value of one seed replaced."""
    out = []
    for case in found:
        if case.run.seed == seed:
            layers = {key: np.where(np.isfinite(value_L), value, np.nan) for key, value_L in case.layers.items()}
            case = replace(case, layers=layers, steps=dict.fromkeys(case.steps, value))  # noqa: PLW2901
        out.append(case)
    return out
