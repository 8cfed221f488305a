"""A copy of the project to break, for tests of commands that read or write its files."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = (
    "conf",
    "experiments",
    "analysis",
    "tests",
    "Makefile",
    "README.md",
    "pyproject.toml",
    ".ci/constraints.txt",
    "results/schema.json",
)


def copied(folder: Path) -> Path:
    """The files of the project, without runs and caches, in a folder that is there."""
    for part in PARTS:
        source, target = ROOT / part, folder / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    return folder


def files(folder: Path) -> set[str]:
    """Paths of the files in a folder, without caches."""
    return {
        str(p.relative_to(folder))
        for p in folder.rglob("*")
        if p.is_file() and not {"__pycache__", ".pytest_cache"} & set(p.parts)
    }


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``python -m ...`` in a copy, whose packages come before any that are installed."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, "-m", *arguments], cwd=folder, env=env, capture_output=True, text=True, check=False)


def check(folder: Path, norm: str, *options: str) -> subprocess.CompletedProcess[str]:
    """The conformance kit on one variant of a copy, without its slow laws unless options ask for them."""
    return python(folder, "pytest", "tests/conformance", f"--norm={norm}", "--laws", "-p", "no:cacheprovider", *options)
