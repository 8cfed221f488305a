"""How a run was made, as far as any process can say: commit, command, versions."""

import importlib.metadata
import platform
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

from experiments.config import CONF

PACKAGES = ("torch", "numpy", "hydra-core", "pyarrow")


def make_manifest(command: str | None = None) -> dict[str, Any]:
    """Manifest of a run that starts now; the caller adds device, data and the size of the model."""
    return {
        "commit": commit(),
        "command": command or " ".join(sys.argv),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
    }


def commit() -> str:
    """Commit of the code that runs, with + where experiments/ or conf/ differ from it; "unknown" outside git."""
    try:
        head = _git("rev-parse", "--short=12", "HEAD")
        return head + ("+" if _git("status", "--porcelain", "--", "experiments", "conf") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*words: str) -> str:
    done = subprocess.run(["git", "-C", str(CONF.parent), *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
