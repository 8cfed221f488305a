"""Made-up studies in the shape of the real ones."""

from dataclasses import replace
from pathlib import Path

from synthetic_store import Run, write_study

SMOKE = (2, 4, 6)  # depths


def smoke(results: Path, *, training: bool = True, init: bool = True) -> Path:
    """Both studies at smoke scale: one seed, three depths."""
    if init:
        write_study(results, init_runs(SMOKE, 1, "smoke"))
    if training:
        write_study(results, training_runs(SMOKE, 1, 40, "smoke"))
    return results


def init_runs(
    depths: tuple[int, ...] = (6, 9, 12, 18, 24, 36, 48, 68, 96), seeds: int = 5, scale: str = "laptop"
) -> list[Run]:
    """The init study: Pre-LN's last point falls as L^-1/2, everything else is flat."""
    return [
        Run(norm, depth, 0, seed, 1, "init", study="init_scaling", scale=scale, init="xavier",
            last_exponent=-0.5 if norm == "pre" else 0.0)
        for norm in ("pre", "post") for depth in depths for seed in range(seeds)
    ]  # fmt: skip


def training_runs(
    depths: tuple[int, ...] = (6, 12, 24, 48, 96), seeds: int = 5, steps: int = 400, scale: str = "laptop"
) -> list[Run]:
    """The training study: Post-LN is stuck without warmup and, at depth 96, with it; one deep run diverges."""
    runs = []
    for norm in ("pre", "post"):
        for depth in depths:
            for warmup in (0, steps // 2):
                for seed in range(seeds if depth <= 24 else min(seeds, 3)):
                    run = Run(norm, depth, warmup, seed, steps, scale=scale, last_exponent=-0.5 if norm == "pre" else 0.0)
                    if norm == "post" and (warmup == 0 or depth == 96) and not (depth == 6 and seed < 2):
                        run = replace(run, outcome="stuck")
                    if norm == "post" and depth == 96 and warmup == 0 and seed == 2:
                        run = replace(run, outcome="diverged", state="diverged")
                    runs.append(run)
    return runs
