"""Laws of the Makefile that cost no set-up."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="no make")


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)


def test_help_lists_every_target() -> None:
    (phony,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M)
    out = make("help").stdout
    for target in phony.split():
        assert f"make {target} " in out


def test_a_folder_of_the_users_own_is_never_cleared(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    done = make("setup", f"VENV={tmp_path}")
    assert done.returncode != 0
    assert "was not made by this Makefile" in done.stdout
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_an_old_python_is_refused_with_the_remedy(tmp_path: Path) -> None:
    old = tmp_path / "python2"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = make("setup", f"VENV={tmp_path / 'venv'}", f"PYTHON={old}")
    assert done.returncode != 0
    assert f"PYTHON={old} is not Python 3.11 to 3.13" in done.stdout
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize(
    ("norm", "norms"), [("mine", "norm=mine,post,pre "), ("post", "norm=post,pre "), ("pre", "norm=post,pre ")]
)
def test_depthcheck_has_each_placement_once(norm: str, norms: str) -> None:
    out = make("-n", "depthcheck", f"NORM={norm}", "INIT=torch", "DEPTHS=6,12").stdout
    assert f"{norms}init=torch model.depth=6,12" in out
    assert "-m study=depthcheck" in out


def test_init_runs_every_study_that_does_not_train_but_the_large_one() -> None:
    """Those of the ledger; a study that needs 12 GB is asked for by name."""
    (listed,) = re.findall(r"^INIT_STUDIES += (.*)$", (ROOT / "Makefile").read_text(), re.M)
    untrained = {path.stem for path in (ROOT / "conf" / "study").glob("*.yaml") if "\n  steps: 0" in path.read_text()}
    assert set(listed.split()) == untrained - {"init_width768", "depthcheck"}
