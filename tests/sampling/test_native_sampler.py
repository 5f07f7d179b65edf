"""The C++ part takes the same tokens as the plain chain, and tells the same of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from forwardpass.errors import ComputeError, ForwardpassError, RequestError
from forwardpass.sampling.adjusting import History
from forwardpass.sampling.chain import choose
from forwardpass.sampling.native_sampler import NativeSampler, native_sampler
from forwardpass.sampling.outcome import Outcome
from forwardpass.sampling.sampler import Sampler
from forwardpass.sampling.settings import resolve
from kernels import harness
from sampling.native_cases import Case, assert_same, cases, exact_part, realistic


def plain(case: Case) -> Outcome:
    history = History(case.prompt, case.output, case.breakers)
    chosen = choose(
        case.scores,
        case.settings,
        history=history,
        position=case.position,
        mask=case.mask,
    )
    return chosen.outcome(case.wanted, case.kept)


def native(case: Case) -> NativeSampler:
    made = native_sampler(case.settings, 0, case.breakers, case.kept)
    assert made is not None
    return made


def answered(made: NativeSampler, case: Case) -> Outcome | None:
    return made.pick(case.scores, case.prompt, case.output, case.position, case.mask, case.wanted)


@pytest.fixture
def levels(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Iterator[str]]:
    """Goes through the levels of this machine, each of them in force while it is had."""

    def each() -> Iterator[str]:
        for level in harness.runnable():
            monkeypatch.setenv("FORWARDPASS_ISA", level)
            yield level

    return each


SIZES = (
    (1, 4, 1500),
    (4, 40, 2500),
    (40, 700, 5000),
    (700, 6000, 800),
    (16_384, 40_000, 180),
    (140_000, 200_000, 20),
)


def test_ten_thousand_rows_have_the_same_outcome_at_every_level(
    levels: Callable[[], Iterator[str]],
) -> None:
    harness.native()
    seen = refused = 0
    decided = np.zeros(3, dtype=int)
    for each in cases(SIZES, seed=1):
        try:
            truth = plain(each)
        except ForwardpassError:
            truth = None
            refused += 1
        for level in levels():
            made = native(each)
            found = answered(made, each)
            if found is not None:
                assert truth is not None, (level, each)
                assert_same(found, truth, (level, each))
            if truth is not None:
                decided += made.decided
        seen += 1
    assert seen == 10_000
    assert refused < 500
    assert decided[0] > 0.8 * decided.sum()
    assert decided[1] > 100
    assert decided[2] < 0.03 * decided.sum()


def sampler(request: dict[str, Any], **members: Any) -> Sampler:
    return Sampler(resolve({"seed": 5, **request}), **members)


def made_by(one: Sampler) -> NativeSampler:
    assert one.native is not None
    return one.native


def test_a_row_of_a_models_size_is_hardly_ever_left_to_the_plain_chain() -> None:
    harness.native()
    rng = np.random.default_rng(2)
    flat = rng.standard_normal(151_936).astype(np.float32)
    for scores in (realistic(rng), flat):
        for asked in (
            {"temperature": 0.7},
            {"temperature": 1.0},
            {"temperature": 0.8, "top_k": 20, "top_p": 0.95},
            {"temperature": 0.8, "min_p": 0.05},
            {"temperature": 1.2, "top_p": 0.9, "sampler": "llama.cpp"},
        ):
            one = sampler(asked)
            for position in range(60):
                one.pick(scores, prompt=(), output=(), position=position)
            by_float32, by_float64, left = made_by(one).decided
            assert by_float32 + by_float64 + left == 60
            assert left == 0, asked


def test_draws_far_down_a_flat_row_fall_where_the_plain_chain_has_them(
    levels: Callable[[], Iterator[str]],
) -> None:
    harness.native()
    rng = np.random.default_rng(3)
    n = 60_000
    rows = {
        "normal": rng.standard_normal(n),
        "equal": np.zeros(n),
        "two plateaus": np.where(rng.random(n) < 0.5, 0.0, -0.5),
        "few values": np.round(rng.standard_normal(n) * 3) / 8,
        "rising": np.linspace(-1, 0, n),
        "one above": np.where(np.arange(n) == 777, 3.0, rng.random(n)),
    }
    beyond = 0
    sigma = {"temperature": 2.0, "top_n_sigma": 1.5}
    for name, row in rows.items():
        for asked in ({}, {"top_p": 0.70031}, {"min_p": 0.4}, sigma):
            scores = row.astype(np.float32)
            request = {"temperature": 1.0, "seed": 11, **asked}
            for level in levels():
                each = Case(scores, request, position=len(name))
                made = native(each)
                found = answered(made, each)
                assert found is not None, (name, asked)
                assert_same(found, plain(each), (level, name, asked))
                beyond += found.rank > 1000
    assert beyond > 40


def test_penalties_bias_and_masks_on_long_rows_have_the_same_outcome(
    levels: Callable[[], Iterator[str]],
) -> None:
    harness.native()
    rng = np.random.default_rng(4)
    n = 50_000
    for i in range(12):
        scores = realistic(rng, n) if i % 2 else rng.standard_normal(n).astype(np.float32)
        best = np.argsort(-scores)[:400].tolist()
        asked = {
            "seed": i,
            "temperature": (0.0, 1.0, 0.8)[i % 3],
            "repetition_penalty": 1.3,
            "logit_bias": {best[0]: -100.0, best[1]: 3.0} if i % 4 else {best[5]: 100.0},
        }
        allowed = rng.random(n) < (0.5, 0.001)[i % 2] if i % 3 == 0 else None
        for level in levels():
            each = Case(scores, asked, tuple(best), best[:9], i, allowed, tuple(best[:3]))
            found = answered(native(each), each)
            assert found is not None
            assert_same(found, plain(each), (level, i))


def test_a_history_that_grows_shrinks_and_changes_has_the_outcome_of_a_new_sampler() -> None:
    harness.native()
    rng = np.random.default_rng(6)
    scores = realistic(rng, 3000)
    asked = {
        "temperature": 1.0,
        "repetition_penalty": 1.2,
        "frequency_penalty": 0.4,
        "dry_multiplier": 1.0,
    }
    for window in (-1, 3, 500):
        one = sampler(asked | {"penalty_last_n": window}, breakers=frozenset({7}))
        output: list[int] = []
        for i in range(120):
            if i % 17 == 16:
                del output[len(output) // 2 :]
            prompt = tuple(range(i // 40 * 3, 30)) if i % 2 else list(range(i // 40 * 3, 30))
            output.append(int(rng.integers(0, 40)))
            found = one.pick(scores, prompt=prompt, output=output, position=i)
            request = asked | {"penalty_last_n": window, "seed": 5}
            each = Case(scores, request, prompt, output, i, breakers=frozenset({7}))
            assert_same(found, plain(each), (window, i))
        assert made_by(one).decided[2] == 0


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("n", [1, 40, 5000, 151_936])
def test_a_score_that_has_no_probability_is_refused_by_its_id(value: float, n: int) -> None:
    harness.native()
    rng = np.random.default_rng(n)
    for asked in ({}, {"temperature": 1.0}, {"temperature": 0.8, "top_k": 20}):
        for _ in range(5):
            scores = rng.standard_normal(n).astype(np.float32)
            place = int(rng.integers(n))
            scores[place] = value
            name = "NaN" if np.isnan(value) else r"\+inf"
            with pytest.raises(ComputeError, match=f"token id {place} of {n:,} is {name}"):
                sampler(asked).pick(scores, prompt=(), output=(), position=0)


def test_what_the_plain_chain_refuses_is_refused_in_its_words() -> None:
    harness.native()
    scores = np.zeros(8, np.float32)
    one = sampler({"temperature": 1.0})
    with pytest.raises(RequestError, match="token id 8 is outside the vocabulary of 8"):
        one.pick(scores, prompt=(), output=(), position=0, also=(8,))
    with pytest.raises(RequestError, match="position"):
        one.pick(scores, prompt=(), output=(), position=-1)
    with pytest.raises(ComputeError, match="mask: none of 8 tokens is left"):
        one.pick(scores, prompt=(), output=(), position=0, mask=np.zeros(8, np.bool_))
    with pytest.raises(ComputeError, match="mask: bool of shape"):
        one.pick(scores, prompt=(), output=(), position=0, mask=np.ones(9, np.bool_))
    with pytest.raises(RequestError, match="logit_bias: token id 9"):
        sampler({"logit_bias": {9: 1.0}}).pick(scores, prompt=(), output=(), position=0)
    with pytest.raises(ComputeError, match="token id 12 is outside the vocabulary of 8"):
        sampler({"repetition_penalty": 2.0}).pick(scores, prompt=(12,), output=(), position=0)
    with pytest.raises(RequestError, match="makes a score infinite"):
        sampler({"repetition_penalty": 1e-308}).pick(
            scores + np.float32(1e30), prompt=(1,), output=(), position=0
        )


def test_the_extension_refuses_ids_that_are_not_rising_ids_of_the_row() -> None:
    inner = made_by(sampler({}))._inner
    scores = np.zeros(8, np.float32)
    for ids in ([8], [-1], [3, 3], [3, 2]):
        numbers = np.array(ids, np.int64)
        with pytest.raises(ValueError, match="rising ids of the row"):
            inner.pick(scores, 0, numbers, np.zeros(numbers.size), None, None)
    with pytest.raises(ValueError, match="values"):
        inner.pick(scores, 0, np.array([1, 2]), np.zeros(1), None, None)
    with pytest.raises(ValueError, match="wanted: token id 8"):
        inner.pick(scores, 0, None, None, None, np.array([8]))
    wrongs: list[Any] = [np.zeros(7, np.uint8), np.zeros(2, np.uint32), np.zeros(8, np.int8)]
    for wrong in wrongs:
        with pytest.raises(ValueError, match="mask"):
            inner.pick(scores, 0, None, None, wrong, None)


def test_rows_and_settings_that_the_extension_has_not_go_through_the_plain_chain() -> None:
    harness.native()
    rng = np.random.default_rng(8)
    wide_row = rng.standard_normal(200)
    spread = rng.standard_normal(400).astype(np.float32)[::2]
    for scores in (wide_row, spread):
        one = sampler({"temperature": 1.0})
        found = one.pick(scores, prompt=(), output=(), position=3)
        truth = choose(scores, one.settings, position=3).outcome()
        assert exact_part(found) == exact_part(truth)
        assert made_by(one).decided == (0, 0, 0)
    assert sampler({"temperature": 1.0, "typical_p": 0.5}).native is None
    assert sampler({"typical_p": 0.5}).native is not None
    assert Sampler(resolve({"temperature": 1.0})).native is None
