"""Records of runs for tests: small, without a model."""

from pathlib import Path

import numpy as np
from compose import config
from omegaconf import DictConfig

from experiments.record import RunWriter

MANIFEST = {"commit": "abc", "device": "cpu"}


def small(results: Path, *overrides: str) -> DictConfig:
    return config("norm=post", "model.depth=3", "train.steps=4", "schedule.warmup=0", f"results={results}", *overrides)


def finished(cfg: DictConfig) -> Path:
    """The folder of a complete run with one step."""
    with RunWriter(cfg, MANIFEST) as writer:
        writer.step({"step": 0, "loss": 5.0})
        writer.layers(0, {"grad_stream": np.ones(4)})
        writer.finish("complete", val_loss=np.float32(2.5))
    return writer.folder


def broken(cfg: DictConfig, error: BaseException) -> Path:
    """The folder of a run that raises after one step."""
    with RunWriter(cfg, MANIFEST) as writer:
        writer.step({"step": 0, "loss": 5.0})
        raise error
    return writer.folder


def contents(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    """Bytes, time of change and inode of each file."""
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino) for path in sorted(folder.iterdir())}
