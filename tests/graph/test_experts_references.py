"""The references of mixtures of experts against plain loops over float64 numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from forwardpass.graph import references, references_experts
from forwardpass.graph.references import F32, TILE, Ids
from graph.test_references import SIZES, check, random

X, K, WIDTH, OUTPUTS = 7, 3, 13, 9  # experts, chosen ones, inputs and outputs of tables


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def softmax(row: list[float]) -> list[float]:
    powers = [math.exp(value - max(row)) for value in row]
    return [power / math.fsum(powers) for power in powers]


def floats(row: F32) -> list[float]:
    return [float(value) for value in row]


def best(row: list[float], k: int) -> list[int]:
    """The k highest places, the lower one where numbers are equal."""
    return sorted(range(len(row)), key=lambda place: (-row[place], place))[:k]


def route(scores: F32, k: int = K, groups: int = 1, kept: int = 1, group_best: int = 1) -> Ids:
    return references_experts.route(scores, k=k, groups=groups, kept=kept, group_best=group_best)


def choice(n: int, seed: int = 0) -> Ids:
    """K different experts of X for each of n tokens."""
    draw = np.random.default_rng(seed)
    rows = [draw.permutation(X)[:K] for _ in range(n)]
    return np.array(rows, np.int64).reshape(n, K)


@pytest.mark.parametrize("n", SIZES)
def test_scores_are_a_softmax_over_all_experts_or_each_one_s_sigmoid(n: int) -> None:
    x = random(n, X) * 3
    soft = references_experts.expert_scores(x, scoring="softmax")
    check("expert_scores", soft, [softmax(floats(row)) for row in x])
    each = references_experts.expert_scores(x, scoring="sigmoid")
    check("expert_scores", each, [[sigmoid(value) for value in floats(row)] for row in x])


def test_scores_far_apart_are_finite() -> None:
    x = np.array([[1e4, -1e4, 0.0]], np.float32)
    for scoring in ("softmax", "sigmoid"):
        found = references_experts.expert_scores(x, scoring=scoring)
        np.testing.assert_array_equal(found[0, :2], [1, 0])


@pytest.mark.parametrize("n", SIZES)
def test_the_best_experts_are_chosen_best_first(n: int) -> None:
    scores = random(n, X)
    found = route(scores)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, [best(floats(row), K) for row in scores])


def test_of_equal_scores_the_lower_number_wins() -> None:
    scores = np.array([[1, 2, 2, 1, 2, 1, 1], [0] * 7, [0.0, -0.0, 1, -0.0, 0, 0, 0]], np.float32)
    np.testing.assert_array_equal(route(scores), [[1, 2, 4], [0, 1, 2], [2, 0, 1]])


def test_the_choice_of_a_row_does_not_depend_on_the_others() -> None:
    scores = np.round(random(50, 12) * 2)  # many are equal
    whole = route(scores, groups=4, kept=2)
    for row in range(50):
        np.testing.assert_array_equal(
            route(scores[row : row + 1], groups=4, kept=2), whole[row, None]
        )


@pytest.mark.parametrize("group_best", [1, 2])
def test_experts_of_the_best_groups_alone_take_part(group_best: int) -> None:
    scores = random(40, 12)
    expected = []
    for row in scores:
        groups = [floats(row[start : start + 3]) for start in range(0, 12, 3)]
        worth = [math.fsum(sorted(group)[-group_best:]) for group in groups]
        open_groups = best(worth, 2)
        inside = [v if e // 3 in open_groups else -math.inf for e, v in enumerate(floats(row))]
        expected.append(best(inside, 5))
    found = route(scores, k=5, groups=4, kept=2, group_best=group_best)
    np.testing.assert_array_equal(found, expected)
    assert (found != route(scores, k=5)).any()


def test_of_equal_groups_the_first_ones_are_kept() -> None:
    scores = np.array([[1, 0, 1, 0, 1, 0]], np.float32)
    np.testing.assert_array_equal(route(scores, k=3, groups=3, kept=2), [[0, 2, 1]])


def test_a_bias_steers_the_choice_and_weighs_nothing() -> None:
    scores, bias = random(20, X), random(X, seed=1)
    options = {"k": K, "groups": 1, "kept": 1, "group_best": 1}
    found = references_experts.route_biased(scores, bias, **options)
    summed = scores + bias
    np.testing.assert_array_equal(found, [best(floats(row), K) for row in summed])
    assert (found != route(scores)).any()
    weights = references_experts.expert_weights(scores, found, normal="none", factor=1.0)
    np.testing.assert_array_equal(weights, np.take_along_axis(scores, found, 1))


@pytest.mark.parametrize("n", SIZES)
def test_the_chosen_scores_are_brought_to_a_sum_or_not_and_multiplied(n: int) -> None:
    scores, chosen = np.abs(random(n, X)), choice(n)
    picked = [[float(row[e]) for e in ids] for row, ids in zip(scores, chosen, strict=True)]
    for normal, plain in {
        "none": picked,
        "sum": [[value / math.fsum(row) for value in row] for row in picked],
        "softmax": [softmax(row) for row in picked],
    }.items():
        found = references_experts.expert_weights(scores, chosen, normal=normal, factor=2.5)
        check("expert_weights", found, np.array(plain) * 2.5)


def test_rows_go_to_each_of_their_experts() -> None:
    x = random(5, WIDTH)
    check("to_experts", references_experts.to_experts(x, choice(5)), [[row] * K for row in x])


@pytest.mark.parametrize("generated", [False, True])
@pytest.mark.parametrize("n", SIZES)
def test_each_row_is_multiplied_by_its_own_expert_s_table(n: int, generated: bool) -> None:
    x, chosen, tables, bias = (
        random(n, K, WIDTH),
        choice(n),
        random(X, OUTPUTS, WIDTH),
        random(X, OUTPUTS),
    )
    plain = [
        [
            [math.fsum(float(a) * float(b) for a, b in zip(x[t, k], column, strict=True))
             for column in tables[chosen[t, k]]]
            for k in range(K)
        ]
        for t in range(n)
    ]  # fmt: skip
    found = references_experts.expert_linear(x, chosen, tables, generated=generated)
    check("expert_linear", found, plain)
    biased = references_experts.expert_linear_bias(x, chosen, tables, bias, generated=generated)
    check("expert_linear_bias", biased, np.array(plain) + bias[chosen])


def test_a_row_has_the_same_bits_whoever_else_is_in_the_pass() -> None:
    x, chosen, tables = random(70, K, 64), choice(70), random(X, 48, 64)
    whole = references_experts.expert_linear(x, chosen, tables)
    for n in (1, 31, 32, 33, 69):
        part = references_experts.expert_linear(x[:n], chosen[:n], tables)
        np.testing.assert_array_equal(part, whole[:n])
    others = references_experts.expert_linear(
        np.concatenate([x[:40], random(30, K, 64, seed=1)]),
        np.concatenate([chosen[:40], choice(30, seed=1)]),
        tables,
    )
    np.testing.assert_array_equal(others[:40], whole[:40])
    # From a tile's edge on, as a prompt that is read in two parts.
    later = references_experts.expert_linear(x[TILE:], chosen[TILE:], tables)
    np.testing.assert_array_equal(later, whole[TILE:])
    drawn = references_experts.expert_linear(x, chosen, tables, generated=True)
    for t in range(70):
        one = references_experts.expert_linear(
            x[t : t + 1], chosen[t : t + 1], tables, generated=True
        )
        np.testing.assert_array_equal(one[0], drawn[t])


def test_experts_without_rows_and_no_rows_at_all() -> None:
    x, tables = random(4, 1, WIDTH), random(X, OUTPUTS, WIDTH)
    chosen = np.full((4, 1), 6, np.int64)
    poisoned = tables.copy()
    poisoned[:6] = np.nan
    for generated in (False, True):
        found = references_experts.expert_linear(x, chosen, poisoned, generated=generated)
        assert np.isfinite(found).all()
        nothing = references_experts.expert_linear(x[:0], chosen[:0], tables, generated=generated)
        assert nothing.shape == (0, 1, OUTPUTS)


@pytest.mark.parametrize("n", SIZES)
def test_rows_of_experts_are_added_up_by_weight(n: int) -> None:
    rows, weights = random(n, K, 6), random(n, K)
    plain = [
        [math.fsum(float(rows[t, k, j]) * float(weights[t, k]) for k in range(K)) for j in range(6)]
        for t in range(n)
    ]
    check("combine", references_experts.combine(rows, weights), plain)


def test_clamped_activations() -> None:
    gate, up = random(20, 6) * 4, random(20, 6, seed=1) * 4
    gate[0], up[0] = 1e4, -1e4
    gate[1], up[1] = -1e4, 1e4

    def plain(g: float, u: float) -> float:
        g, u = min(g, 3.0), max(-3.0, min(u, 3.0))
        # e^x of far negative gates is beyond a float64 upside down: the product is 0.
        return 0.0 if g < -500 else g * sigmoid(1.7 * g) * (u + 1)

    expected = [
        [plain(float(g), float(u)) for g, u in zip(*row, strict=True)]
        for row in zip(gate, up, strict=True)
    ]
    found = references_experts.clamped_silu_multiply(gate, up, alpha=1.7, limit=3.0)
    check("clamped_silu_multiply", found, expected)


@pytest.mark.parametrize("n", SIZES)
def test_a_row_is_multiplied_by_the_sigmoid_of_its_number(n: int) -> None:
    x, numbers = random(n, 6), random(n, 1) * 3
    plain = [
        [float(value) * sigmoid(float(number[0])) for value in row]
        for row, number in zip(x, numbers, strict=True)
    ]
    check("sigmoid_scale", references_experts.sigmoid_scale(x, numbers), plain)


def attended(
    q: F32, keys: F32, values: F32, first: int, sinks: F32 | None, window: int | None
) -> list[list[list[float]]]:
    """Attention by loops; a sink is one more score, whose weight goes nowhere."""
    out = []
    for t, heads in enumerate(q):
        place = first + t
        low = 0 if window is None else max(0, place - window + 1)
        row = []
        for h, query in enumerate(heads):
            g = h * keys.shape[0] // q.shape[1]
            scores = [
                0.3 * math.fsum(float(a) * float(b) for a, b in zip(query, keys[g, s], strict=True))
                for s in range(low, place + 1)
            ]
            extra = [] if sinks is None else [float(sinks[h])]
            weights = softmax([*scores, *extra])[: len(scores)]
            seen = values[g, low : place + 1]
            row.append([
                math.fsum(w * float(v[j]) for w, v in zip(weights, seen, strict=True))
                for j in range(values.shape[2])
            ])  # fmt: skip
        out.append(row)
    return out


@pytest.mark.parametrize("generated", [False, True])
@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("narrow", [False, True])
def test_sinks_take_weight_that_goes_nowhere(
    narrow: bool, window: int | None, generated: bool
) -> None:
    """Also where values are narrower than keys, with and without sinks."""
    first, n, width = 11, 7, 4 if narrow else 6
    q, sinks = random(n, 4, 6), random(4, seed=2)
    room = first + -(-n // TILE) * TILE
    keys, values = random(2, room, 6), random(2, room, width, seed=1)
    places = np.arange(first, first + n, dtype=np.int64)
    options = {"scale": 0.3, "window": window, "softcap": None, "generated": generated}
    found = references.attention_sinks(q, keys, values, places, sinks, **options)  # type: ignore[arg-type]
    check("attention_sinks", found, attended(q, keys, values, first, sinks, window))
    without = references.attention(q, keys, values, places, **options)  # type: ignore[arg-type]
    check("attention", without, attended(q, keys, values, first, None, window))
    low = np.full(4, -1e4, np.float32)
    same = references.attention_sinks(q, keys, values, places, low, **options)  # type: ignore[arg-type]
    np.testing.assert_array_equal(same, without)
    high = np.full(4, 1e4, np.float32)
    nothing = references.attention_sinks(q, keys, values, places, high, **options)  # type: ignore[arg-type]
    assert not nothing.any()
