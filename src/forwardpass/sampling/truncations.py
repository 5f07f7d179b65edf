"""The stages that leave tokens out of a distribution, and the draw from what is left.

Each is a pure function of candidates in order, best score first and equals by id, and gives the
positions that it keeps, in that order. `probabilities` are float64 and above 0; unless a stage
says otherwise their sum may fall short of 1, by what stages before it left out.
"""

from __future__ import annotations

import numpy as np

from forwardpass.sampling.stages import Ids, Probabilities, Scores

# A sum of float64 probabilities is off by its own rounding. A mass or a probability counts as
# reaching its bound from this much below, so ten tokens of 0.1 under top-p 0.8 are eight.
TOLERANCE = 1e-12


def top_n_sigma(scores: Scores, n: float) -> Ids:
    """The scores at most n standard deviations (of these candidates) below the best.

    A temperature scales both, so the same before and after it. Source: arXiv:2411.07641 section 3.
    """
    reach = n * float(np.std(scores, dtype=np.float64))
    return np.arange(np.count_nonzero(scores >= scores[0] - reach * (1 + TOLERANCE)))


def top_k(scores: Scores, k: int, exact: bool = True) -> Ids:
    """The k best (all, where there are fewer): exactly k, or with all that equal the last of them.

    Source: arXiv:1805.04833 section 5.4.
    """
    if exact or k >= scores.size:
        return np.arange(min(k, scores.size))
    return np.arange(np.count_nonzero(scores >= scores[k - 1]))


def typical_p(probabilities: Probabilities, mass: float) -> Ids:
    """The fewest tokens that hold `mass`, those first whose surprise -ln p is nearest to the
    entropy; at least one.

    Expects probabilities that add up to 1. Source: arXiv:2202.00666 section 4.
    """
    surprise = -np.log(probabilities)
    distance = np.abs(surprise - float((probabilities * surprise).sum()))
    order = np.argsort(distance, kind="stable")
    count = 1 + int(np.searchsorted(np.cumsum(probabilities[order]), mass - TOLERANCE))
    return np.sort(order[:count])


def top_p(probabilities: Probabilities, p: float) -> Ids:
    """The fewest best tokens whose mass reaches p, at least one.

    What top-k left of a distribution need not be rescaled: of (.5, .25), left of
    (.5, .25, .15, .1), p = 0.6 keeps both; of the same rescaled it keeps the first.

    Source: arXiv:1904.09751 section 3.1.
    """
    count = 1 + int(np.searchsorted(np.cumsum(probabilities), p - TOLERANCE))
    return np.arange(min(count, probabilities.size))


def min_p(probabilities: Probabilities, m: float) -> Ids:
    """The tokens with at least m times the probability of the best.

    Source: arXiv:2407.01082 section 3.
    """
    bound = m * probabilities[0] * (1 - TOLERANCE)
    return np.arange(np.count_nonzero(probabilities >= bound))


def xtc(probabilities: Probabilities, threshold: float) -> Ids:
    """All tokens but the best ones: of those with at least `threshold` only the last stays. All,
    where fewer than two have as much.

    Expects probabilities that add up to 1. Whether the stage acts at all is drawn before, with
    the setting's probability. Source: llama.cpp, src/llama-sampler.cpp, and its author's
    description, oobabooga/text-generation-webui#6335.
    """
    able = int(np.count_nonzero(probabilities >= threshold - TOLERANCE))
    return np.arange(max(able - 1, 0), probabilities.size)


def draw(probabilities: Probabilities, u: float) -> int:
    """The position that u in [0, 1) falls on, of probabilities that add up to 1: inverse CDF.
    Token i takes [mass before it, mass up to and with it).

    Where the sum falls short of u by rounding, the least likely token takes the rest.
    """
    rank = int(np.searchsorted(np.cumsum(probabilities), u, side="right"))
    return min(rank, probabilities.size - 1)
