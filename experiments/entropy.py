"""Unigram and bigram entropies of a token source, the reference lines of a loss curve: what is known without context, and
from the previous token alone."""

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.integer]
Counts = NDArray[np.int64]

BOUND = 2**23  # tokens; of a longer split the first BOUND are used
DENSE = 2**20  # pairs; more possible pairs than this are sorted instead of tabulated
STRENGTHS = 2.0 ** np.arange(-10, 21)  # of the prior, in tokens; tried for the bigrams


def entropies(train_N: Tokens, valid_N: Tokens, vocab: int) -> dict[str, float]:
    """Nats per token. Both splits have two tokens or more.

    unigram, bigram : cross-entropy of the validation split under the training split's frequencies. Unigrams count one
        more each: m_b = (n_b + 1) / (N + V). Bigrams have a Dirichlet prior on that, p(b|a) = (n_ab + α m_b) / (n_a + α)
        (MacKay and Peto 1995, A hierarchical Dirichlet language model), with the α that best predicts each training
        pair from all others (leaving one out: Ney, Essen and Kneser 1995).
    unigram_train, bigram_train : plug-in entropies H(b) and H(b|a) of the training split: below the truth where most
        pairs are rare, as for large vocabularies.
    """
    train, valid = train_N[:BOUND].astype(np.int64), valid_N[:BOUND].astype(np.int64)
    count_V = np.bincount(train, minlength=int(valid.max()) + 1)
    prior_V = (count_V + 1) / (len(train) + vocab)
    pair, count = _pairs(train, vocab)
    start_V = np.bincount(train[:-1], minlength=len(count_V))
    strength = _strength(count, start_V[pair // vocab], prior_V[pair % vocab])
    met, weight = _pairs(valid, vocab)
    place = np.minimum(np.searchsorted(pair, met), len(pair) - 1)
    seen = np.where(pair[place] == met, count[place], 0)
    predicted = (seen + strength * prior_V[met % vocab]) / (start_V[met // vocab] + strength)
    frequency = count_V[count_V > 0] / len(train)
    return {
        "unigram": -float(np.log(prior_V[valid]).mean()),
        "bigram": -float(np.average(np.log(predicted), weights=weight)),
        "unigram_train": -float(frequency @ np.log(frequency)),
        "bigram_train": -float(np.average(np.log(count / start_V[pair // vocab]), weights=count)),
    }


def _pairs(token_N: Counts, vocab: int) -> tuple[Counts, Counts]:
    """Neighbours a, b that occur, as a V + b in rising order, and how often each does."""
    code = token_N[:-1] * vocab + token_N[1:]
    if vocab * vocab > DENSE:
        return np.unique(code, return_counts=True)
    count = np.bincount(code)
    pair = np.flatnonzero(count)
    return pair, count[pair]


def _strength(count: Counts, start: Counts, prior: NDArray[np.float64]) -> float:
    """The α of STRENGTHS under which the training pairs, each left out in turn, are likeliest."""

    def fit(strength: float) -> float:
        return float(count @ np.log((count - 1 + strength * prior) / (start - 1 + strength)))

    return float(max(STRENGTHS, key=fit))
