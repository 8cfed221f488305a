"""The two packages meet only in files: each module, imported alone, loads nothing of the other side."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FORBIDDEN = {
    "analysis": ("torch", "hydra", "omegaconf", "experiments"),
    "experiments": ("analysis", "pandas", "matplotlib", "seaborn"),
}


def modules(package: str) -> list[str]:
    paths = (ROOT / package).rglob("*.py")
    return sorted(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in paths)


def loaded(names: Iterable[str], package: str) -> list[str]:
    """Forbidden packages that a fresh interpreter has loaded after importing the names, one by one."""
    code = (
        "import importlib, sys\n"
        f"for name in {list(names)!r}:\n"
        "    importlib.import_module(name)\n"
        f"    bad = [other for other in {FORBIDDEN[package]!r} if other in sys.modules]\n"
        "    if bad: print(name, *bad); break\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout.split()


@pytest.mark.parametrize("package", sorted(FORBIDDEN))
def test_package_loads_nothing_of_the_other_side(package: str) -> None:
    names = modules(package)
    assert len(names) > 5
    assert loaded(names, package) == []


def test_the_check_can_fail() -> None:
    assert loaded(["json", "torch"], "analysis") == ["torch", "torch"]
    assert loaded(["analysis.load"], "experiments")[0] == "analysis.load"


def test_a_sweeps_parent_loads_no_torch() -> None:
    code = "import sys, experiments.train; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "False"
