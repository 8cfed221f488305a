"""Laws of the entropies, against closed forms and a count with dictionaries."""

from collections import Counter
from itertools import pairwise
from math import log

import numpy as np
import pytest

from experiments import entropy
from experiments.entropy import STRENGTHS, entropies


def markov(n: int, seed: int) -> np.ndarray:
    """A chain over 0 to 4 that mostly steps up by one."""
    rng = np.random.default_rng(seed)
    return np.cumsum(np.where(rng.random(n) < 0.7, 1, rng.integers(0, 5, n))) % 5


def by_hand(train: list[int], valid: list[int], vocab: int) -> dict[str, float]:
    count, pairs, starts = Counter(train), Counter(pairwise(train)), Counter(train[:-1])

    def prior(b: int) -> float:
        return (count[b] + 1) / (len(train) + vocab)

    def fit(strength: float) -> float:
        return sum(n * log((n - 1 + strength * prior(b)) / (starts[a] - 1 + strength)) for (a, b), n in pairs.items())

    strength = max(STRENGTHS, key=fit)
    following = list(pairwise(valid))
    likely = [(pairs[a, b] + strength * prior(b)) / (starts[a] + strength) for a, b in following]
    return {
        "unigram": -sum(log(prior(b)) for b in valid) / len(valid),
        "bigram": -sum(map(log, likely)) / len(likely),
        "unigram_train": -sum(n / len(train) * log(n / len(train)) for n in count.values()),
        "bigram_train": -sum(n * log(n / starts[a]) for (a, _), n in pairs.items()) / (len(train) - 1),
    }


@pytest.mark.parametrize("dense", [entropy.DENSE, 0])
@pytest.mark.parametrize("vocab", [5, 9])
def test_entropies_equal_a_count_by_hand(monkeypatch, dense, vocab):
    monkeypatch.setattr(entropy, "DENSE", dense)
    train, valid = markov(500, 0), np.append(markov(100, 1), [vocab - 1, 0])
    assert entropies(train, valid, vocab) == pytest.approx(by_hand(train.tolist(), valid.tolist(), vocab))


@pytest.mark.parametrize("dtype", [np.uint8, np.dtype("<u2"), np.int64])
def test_the_type_of_the_tokens_does_not_matter(dtype):
    train, valid = markov(500, 0) + 250, markov(100, 1) + 250
    assert entropies(train.astype(dtype), valid.astype(dtype), 256) == entropies(train, valid, 256)


def test_equally_frequent_tokens_have_the_logarithm_of_their_number():
    tokens = np.random.default_rng(0).permutation(np.arange(8000) % 8)
    found = entropies(tokens, tokens, 8)
    assert found["unigram"] == pytest.approx(log(8))
    assert found["unigram_train"] == pytest.approx(log(8))
    assert found["bigram"] == pytest.approx(log(8), abs=0.01)


def test_the_successor_of_a_cycle_is_certain():
    cycle = np.arange(5000) % 5
    found = entropies(cycle, cycle, 5)
    assert found["bigram_train"] == 0
    assert 0 < found["bigram"] < 1e-3
    assert found["unigram"] == pytest.approx(log(5))


def test_a_single_token_has_no_entropy():
    found = entropies(np.zeros(100, int), np.zeros(10, int), 1)
    assert all(value == pytest.approx(0) for value in found.values())


def test_tokens_that_training_never_showed_cost_finitely_much():
    found = entropies(np.zeros(100, int), np.array([3, 2, 0, 2]), 4)
    assert all(np.isfinite(value) for value in found.values())


@pytest.mark.parametrize("a", [0, 4, 6])
def test_predicted_probabilities_sum_to_one(a):
    train, vocab = markov(300, 0), 7
    bigram = [np.exp(-entropies(train, np.array([a, b]), vocab)["bigram"]) for b in range(vocab)]
    unigram = [np.exp(-entropies(train, np.array([b, b]), vocab)["unigram"]) for b in range(vocab)]
    assert sum(bigram) == pytest.approx(1)
    assert sum(unigram) == pytest.approx(1)


def test_of_a_long_split_only_the_stated_number_of_tokens_counts(monkeypatch):
    train, valid = markov(500, 0), markov(500, 1)
    expected = entropies(train[:200], valid[:200], 5)
    monkeypatch.setattr(entropy, "BOUND", 200)
    assert entropies(train, valid, 5) == expected
