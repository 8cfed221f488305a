"""Token sources. A batch is a pure function of (source, seed, step), so a resumed run needs no state of its data, and
placements and depths of one seed see the same tokens. Nothing here imports torch: a sweep checks its data in its own process.
"""

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from math import log
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from omegaconf import DictConfig

from experiments.config import ConfigError
from experiments.corpus import shakespeare
from experiments.entropy import Tokens, entropies

Batch = NDArray[np.int64]  # [B, T + 1]: the inputs are [:, :-1], the targets [:, 1:]

BYTES = 256  # vocabulary of a text
TRAINING, VALIDATION = 0, 1  # streams of random numbers
CHUNK = 2**24  # tokens checked at a time, so that a large file is never in memory as a whole


class Source(ABC):
    """Where tokens come from; ids are below ``vocab``. Token counts are None where tokens are drawn without end."""

    name: str
    vocab: int
    n_train: int | None
    n_valid: int | None

    @property
    @abstractmethod
    def sha256(self) -> str:
        """Digest of all tokens as stored, or of the source's definition where none are."""

    @abstractmethod
    def batch(self, seed: int, step: int, size: int, context: int) -> Batch:
        """Training sequences [B, T + 1] of a step. A smaller batch is the beginning of a larger one."""

    @abstractmethod
    def valid_batches(self, n: int, size: int, context: int) -> Batch:
        """Validation sequences [n, B, T + 1], the same for every run and seed."""

    @abstractmethod
    def entropies(self) -> dict[str, float]:
        """As experiments.entropy.entropies, nats per token."""

    def describe(self) -> dict[str, Any]:
        """What a run's manifest says of its data. Costs 0.1 s; a large token file some seconds and one per GB."""
        splits = {"train_tokens": self.n_train, "valid_tokens": self.n_valid}
        return {"name": self.name, "sha256": self.sha256, "vocab": self.vocab, **splits, **self.entropies()}


@final
class Stored(Source):
    """A sequence of tokens: the first ``n_train`` for training, the rest for validation."""

    n_train: int
    n_valid: int

    def __init__(self, name: str, vocab: int, tokens: Tokens, n_train: int) -> None:
        self.name, self.vocab, self.tokens = name, vocab, tokens
        self.n_train, self.n_valid = n_train, len(tokens) - n_train

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.tokens.data).hexdigest()

    def batch(self, seed: int, step: int, size: int, context: int) -> Batch:
        """Windows that start anywhere in the training split, drawn with replacement."""
        start_B = _random(TRAINING, seed, step).integers(self.n_train - context, size=size)
        return self._windows(start_B, context)

    def valid_batches(self, n: int, size: int, context: int) -> Batch:
        """Windows evenly spread over the whole validation split; they overlap if it is short."""
        last, count = self.n_valid - context - 1, n * size
        start_N = self.n_train + np.arange(count) * last // max(count - 1, 1)
        return self._windows(start_N, context).reshape(n, size, context + 1)

    def entropies(self) -> dict[str, float]:
        return self._entropies

    @cached_property
    def _entropies(self) -> dict[str, float]:
        return entropies(self.tokens[: self.n_train], self.tokens[self.n_train :], self.vocab)

    def _windows(self, start_B: NDArray[np.int64], context: int) -> Batch:
        window_BT: Batch = self.tokens[start_B[:, None] + np.arange(context + 1)].astype(np.int64)
        return window_BT


@final
class Uniform(Source):
    """Independent tokens, each id equally likely, drawn anew for every batch."""

    def __init__(self, name: str, vocab: int) -> None:
        self.name, self.vocab = name, vocab
        self.n_train = self.n_valid = None

    @property
    def sha256(self) -> str:
        return hashlib.sha256(f"independent uniform tokens below {self.vocab}".encode()).hexdigest()

    def batch(self, seed: int, step: int, size: int, context: int) -> Batch:
        return _random(TRAINING, seed, step).integers(self.vocab, size=(size, context + 1))

    def valid_batches(self, n: int, size: int, context: int) -> Batch:
        return _random(VALIDATION, 0, 0).integers(self.vocab, size=(n, size, context + 1))

    def entropies(self) -> dict[str, float]:
        return dict.fromkeys(("unigram", "bigram", "unigram_train", "bigram_train"), log(self.vocab))


def _random(stream: int, seed: int, step: int) -> np.random.Generator:
    """A generator of its own for every address; a seed may have up to 128 bits without meeting another."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(stream, step)))


def make_source(cfg: DictConfig) -> Source:
    """The source that cfg.data names, checked; every split holds at least one sequence of cfg.train.context tokens and a
    target. Raises ConfigError. Relative paths are relative to the current directory."""
    make, used = SOURCES[cfg.data.name]
    for key in {"path", "vocab", "valid_fraction"} - set(used):
        if (value := cfg.data.get(key)) is not None:
            raise ConfigError(f"data.{key}={value} means nothing to data.name={cfg.data.name}; leave it out")
    return make(cfg)


def _shakespeare(cfg: DictConfig) -> Source:
    text, n_train = shakespeare(Path(cfg.results))
    return _checked(cfg, Stored("shakespeare", BYTES, np.frombuffer(text, np.uint8), n_train))


def _text(cfg: DictConfig) -> Source:
    path = _file(cfg.data.path)
    content = path.read_bytes()
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"data.path={path} is not UTF-8: byte {error.start} is 0x{content[error.start]:02x}; convert the file to UTF-8"
        ) from error
    return _split(cfg, np.frombuffer(content, np.uint8), BYTES)


def _tokens(cfg: DictConfig) -> Source:
    path, vocab = _file(cfg.data.path), _vocab(cfg)
    if (size := path.stat().st_size) % 2:
        raise ConfigError(f"data.path={path} has {size} bytes, an odd number: it is cut short, or not a file of uint16 tokens")
    tokens: NDArray[np.uint16] = np.memmap(path, "<u2", mode="r")
    for begin in range(0, len(tokens), CHUNK):
        chunk = tokens[begin : begin + CHUNK]
        if chunk.max() >= vocab:
            at = int(np.argmax(chunk >= vocab))
            raise ConfigError(
                f"data.path={path} holds the token {chunk[at]} at position {begin + at}, but data.vocab={vocab} allows ids "
                f"up to {vocab - 1}; set data.vocab to the tokenizer's size"
            )
    return _split(cfg, tokens, vocab)


def _uniform(cfg: DictConfig) -> Source:
    return Uniform("random", _vocab(cfg))


# How each source is made, and the keys of conf/data that it reads.
SOURCES: dict[str, tuple[Callable[[DictConfig], Source], tuple[str, ...]]] = {
    "shakespeare": (_shakespeare, ()),
    "text": (_text, ("path", "valid_fraction")),
    "tokens": (_tokens, ("path", "vocab", "valid_fraction")),
    "random": (_uniform, ("vocab",)),
}


def _file(path: str | None) -> Path:
    if not path:
        raise ConfigError("data.path is not set; give a file: data.path=FILE")
    file = Path(path).expanduser()
    if not os.path.isfile(file):
        fault = "is a directory" if os.path.isdir(file) else "is not a file" if os.path.lexists(file) else "does not exist"
        raise ConfigError(f"data.path={path} {fault} (from {Path.cwd()}); give a file: data.path=FILE")
    if not os.access(file, os.R_OK):
        raise ConfigError(f"data.path={path} may not be read by this user; change its permissions")
    if not os.path.getsize(file):
        raise ConfigError(f"data.path={path} is empty; give a file with more than train.context tokens in each split")
    return file


def _vocab(cfg: DictConfig) -> int:
    vocab: int | None = cfg.data.vocab
    if vocab is None or vocab < 1:
        raise ConfigError(f"data.vocab={vocab} must be the number of token ids, 1 or more")
    return vocab


def _split(cfg: DictConfig, tokens: Tokens, vocab: int) -> Source:
    """Training split, then data.valid_fraction of the tokens for validation."""
    fraction: float | None = cfg.data.valid_fraction
    if fraction is None or not 0 < fraction < 1:
        raise ConfigError(f"data.valid_fraction={fraction} must be above 0 and below 1, such as 0.1")
    n_train = len(tokens) - int(fraction * len(tokens))
    return _checked(cfg, Stored(cfg.data.name, vocab, tokens, n_train))


def _checked(cfg: DictConfig, source: Stored) -> Stored:
    need = cfg.train.context + 1
    for split, n in (("training", source.n_train), ("validation", source.n_valid)):
        if n < need:
            where = f"data.path={cfg.data.path}" if cfg.data.path else f"data.name={source.name}"
            raise ConfigError(
                f"{where} has {n} tokens for {split}, and train.context={cfg.train.context} needs {need}; give a longer "
                "file, shorten train.context or change data.valid_fraction"
            )
    return source
