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
NEARNESS = 12  # and a distance from the entropy is compared to this many decimals


def top_n_sigma(scores: Scores, n: float) -> Ids:
    """The scores at most n standard deviations (of all these scores) below the best.

    The same before and after a temperature, which scales both. Source: arXiv:2411.07641, "Top-nσ:
    Not All Logits Are You Need".
    """
    gaps = np.subtract(scores[0], scores, dtype=np.float64)
    gaps /= gaps[-1] or 1.0  # between 0 and 1, so that no square overflows
    return np.arange(np.count_nonzero(gaps <= n * float(np.std(gaps)) * (1 + TOLERANCE)))


def top_k(scores: Scores, k: int, exact: bool = True) -> Ids:
    """The k best (all, where there are fewer): exactly k, or with all that equal the last of them.

    Source: arXiv:1805.04833 section 5.4.
    """
    if exact or k >= scores.size:
        return np.arange(min(k, scores.size))
    return np.arange(np.count_nonzero(scores >= scores[k - 1]))


def typical_p(probabilities: Probabilities, mass: float, exact: bool = True) -> Ids:
    """The fewest tokens that hold `mass`, those first whose surprise -ln p is nearest to the
    entropy; at least one. Of equally near ones the better, or (`exact` false) all that are as near
    as the last: of (.5, .25, .25) all three are half a bit away.

    Expects probabilities that add up to 1. Source: arXiv:2202.00666, "Locally Typical Sampling".
    """
    surprise = -np.log(probabilities)
    distance = np.abs(surprise - float((probabilities * surprise).sum())).round(NEARNESS)
    order = np.argsort(distance, kind="stable")
    reached = int(np.searchsorted(np.cumsum(probabilities[order]), mass - TOLERANCE))
    last = min(reached, order.size - 1)
    if exact:
        return np.sort(order[: last + 1])
    return np.flatnonzero(distance <= distance[order[last]])


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
    the setting's probability. Source: its author's description, oobabooga/textgen#6335, and
    llama.cpp, src/llama-sampler.cpp, llama_sample_xtc_apply.
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
