"""A claim of two tests and stores in which it is read."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

from synthetic_ledger import obeying_cases
from synthetic_memory import Memory, study, write_reference
from synthetic_store import Run

from analysis.claims import evaluate, needed
from analysis.evidence.measures import Exponent
from analysis.evidence.quantities import Point
from analysis.evidence.record import LAST
from analysis.evidence.rows import Row
from analysis.evidence.sources import Sources
from analysis.ledger import entry

INIT = entry.Test(
    "at initialisation", "init_scaling", "norm of ∂loss/∂x_0", "exponent in L", "L^0", Exponent(Point("grad_stream", "first")),
    entry.law(0), {"norm": "pre", "factor": "base"},
)  # fmt: skip
END = replace(INIT, when="after training", study="depth_warmup", where={"norm": "pre", "warmup": 0, "outcome": "trained"},
              measure=Exponent(Point("grad_stream", "first", LAST)))  # fmt: skip
BOTH = entry.Claim("C1", "a claim", "a paper", (INIT, END))
DEPTHS = (12, 24, 48, 96)


def init_runs(seeds: int = 3, **options: object) -> list[Run]:
    override = {"study.factor": "base"} | dict(options)
    return [Run("pre", L, 0, seed, 1, "init", study="init_scaling", init="xavier", override=override)
            for L in DEPTHS for seed in range(seeds)]  # fmt: skip


def trained_runs() -> list[Run]:
    return [Run("pre", L, 0, seed, 20) for L in DEPTHS for seed in range(3)]


def rows(results: Path, claim: entry.Claim = BOTH) -> list[Row]:
    return evaluate(Sources(results, "laptop", partial(needed, claims=(claim,))), claim)


def reference(results: Path, *tests: entry.Test) -> None:
    for test in tests:
        write_reference(results, study(test.study, obeying_cases(test)))


def write_checks(path: Path, measured: float = 0.0) -> None:
    check = {
        "id": "C16",
        "name": "pre_shape",
        "quantity": "",
        "setting": "",
        "expected": 0.0,
        "measured": measured,
        "tolerance": 0,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schema": 1, "commit": "abc1234", "versions": {}, "checks": [check]}))


def judged(store: Memory, claim: entry.Claim, test: entry.Test) -> Row:
    """The row of one test of a claim."""
    (row,) = evaluate(store, entry.Claim(claim.id, claim.statement, claim.source, (test,)))
    return row
