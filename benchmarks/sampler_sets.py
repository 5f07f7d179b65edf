"""Whether the preset `llama.cpp` keeps the tokens that llama.cpp's own sampler chain keeps.

    python benchmarks/sampler_sets.py --rows 5000 --vocabulary model.gguf

Needs an interpreter that has llama-cpp-python beside this project, as `rivals.py setup` makes one.
Each row is a random or awkward one (ties, all equal, one far ahead, -inf) under random values of
every stage. llama.cpp is run through its C interface, stages in the order of its `common.h`, on
the row as it is; `--vocabulary` names any GGUF file, whose tokens DRY needs.

Kept tokens are compared by their scores, as many of each, since llama.cpp leaves the order of
equals open; probabilities to 1e-5. llama.cpp computes in float32: a row is `near a bound`, and not
compared, where our own set is another once the shares asked for, or sigma's or XTC's bound, are
moved by 1e-4. Typical over tokens of score -inf, which top-n-sigma makes too, is counted apart:
llama.cpp's entropy is NaN there.
"""

from __future__ import annotations

import argparse
import ctypes
import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import llama_cpp
import numpy as np
import numpy.typing as npt

from forwardpass.sampling.adjusting import History
from forwardpass.sampling.chain import choose
from forwardpass.sampling.choice import Choice
from forwardpass.sampling.settings import resolve

Row = npt.NDArray[np.float32]
Values = Mapping[str, Any]

EDGE = 1e-4
MOVED = ("top_n_sigma", "typical_p", "top_p", "min_p", "xtc_threshold")
BREAKERS = ("\n", ":", '"', "*")
MOST_TOKENS = 1_000_000
SIZES = (2, 5, 17, 60, 300, 2_000)


class Vocabulary:
    """The tokens of a GGUF file, without its weights."""

    def __init__(self, path: str) -> None:
        # kept, or a message calls into freed memory
        self._quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self._quiet, ctypes.c_void_p(0))
        params = llama_cpp.llama_model_default_params()
        params.vocab_only = True
        model = llama_cpp.llama_model_load_from_file(path.encode(), params)
        if not model:
            sys.exit(f"{path}: llama.cpp cannot read its vocabulary")
        self.handle = llama_cpp.llama_model_get_vocab(model)
        self.size = llama_cpp.llama_vocab_n_tokens(self.handle)

    def piece(self, token: int) -> bytes:
        room = ctypes.create_string_buffer(512)
        length = llama_cpp.llama_token_to_piece(self.handle, token, room, len(room), 0, True)
        return room.raw[: max(length, 0)]

    def holding(self, texts: Sequence[str]) -> frozenset[int]:
        """Tokens that hold one of `texts`."""
        pieces = ((token, self.piece(token)) for token in range(self.size))
        return frozenset(t for t, piece in pieces if any(text.encode() in piece for text in texts))


def chain(values: Values, vocabulary: Vocabulary | None) -> Iterator[Any]:
    """llama.cpp's stages in its own order; what is off is not there."""
    yield llama_cpp.llama_sampler_init_penalties(
        MOST_TOKENS,
        values["penalty_last_n"],
        values.get("repetition_penalty", 1.0),
        values.get("frequency_penalty", 0.0),
        values.get("presence_penalty", 0.0),
    )
    if vocabulary is not None and "dry_multiplier" in values:
        texts = (ctypes.c_char_p * len(BREAKERS))(*(text.encode() for text in BREAKERS))
        yield llama_cpp.llama_sampler_init_dry(
            vocabulary.handle,
            values["dry_multiplier"],
            values["dry_base"],
            values["dry_allowed_length"],
            values["dry_penalty_last_n"],
            texts,
            len(BREAKERS),
        )
    made = {
        "top_n_sigma": llama_cpp.llama_sampler_init_top_n_sigma,
        "top_k": llama_cpp.llama_sampler_init_top_k,
        "typical_p": lambda p: llama_cpp.llama_sampler_init_typical(p, 0),
        "top_p": lambda p: llama_cpp.llama_sampler_init_top_p(p, 0),
        "min_p": lambda p: llama_cpp.llama_sampler_init_min_p(p, 0),
        "xtc_probability": lambda p: llama_cpp.llama_sampler_init_xtc(
            p, values["xtc_threshold"], 0, 1
        ),
        "temperature": llama_cpp.llama_sampler_init_temp,
    }
    for name, init in made.items():
        if name in values:
            yield init(values[name])


def theirs(
    row: Row, history: History, values: Values, vocabulary: Vocabulary | None
) -> dict[int, float]:
    """Probability of each token that llama.cpp keeps."""
    adjusted = row.copy()
    for token, bias in values.get("logit_bias", {}).items():
        adjusted[token] += np.float32(bias)
    entries = (
        llama_cpp.llama_token_data(token, float(score), 0.0) for token, score in enumerate(adjusted)
    )
    data = (llama_cpp.llama_token_data * row.size)(*entries)
    left = llama_cpp.llama_token_data_array(data=data, size=row.size, selected=-1, sorted=False)
    for sampler in chain(values, vocabulary):
        for token in history.seen.tolist():
            llama_cpp.llama_sampler_accept(sampler, token)
        llama_cpp.llama_sampler_apply(sampler, ctypes.byref(left))
        llama_cpp.llama_sampler_free(sampler)
    kept = {left.data[i].id: left.data[i].logit for i in range(left.size)}
    kept = {token: score for token, score in kept.items() if score > -np.inf}
    weights = np.exp(np.array(list(kept.values()), dtype=np.float64) - max(kept.values()))
    return dict(zip(kept, (weights / weights.sum()).tolist(), strict=True))


def ours(row: Row, history: History, values: Values) -> Choice:
    settings = resolve({**values, "sampler": "llama.cpp", "seed": 0})
    return choose(row, settings, history=history, position=0)


def near_a_bound(row: Row, history: History, values: Values) -> bool:
    found = set()
    for by in (1 - EDGE, 1, 1 + EDGE):
        most = {"xtc_threshold": 0.5, "top_n_sigma": 1e9}
        moved = {
            name: min(value * by, most.get(name, 0.999999)) if name in MOVED else value
            for name, value in values.items()
        }
        found.add(tuple(ours(row, history, moved).kept[-1].ids.tolist()))
    return len(found) > 1


def difference(choice: Choice, found: Mapping[int, float]) -> str | None:
    """What differs: the set, the probabilities, or nothing."""
    scores = choice.adjusted[-1].scores.astype(np.float32)
    kept = choice.kept[-1].ids
    if Counter(scores[kept].tolist()) != Counter(scores[list(found)].tolist()):
        return "set"
    mine = [entry.probability for entry in choice.sampled.top(scores.size)]
    apart = np.abs(np.array(mine) - np.array(sorted(found.values(), reverse=True)))
    return "probability" if apart.max() > 1e-5 else None


def scores_of(rng: random.Random, size: int) -> Row:
    kind = rng.choice(("normal", "wide", "ties", "all_equal", "one_far", "minus_infinity"))
    scores = np.array([rng.gauss(0, 6.0 if kind == "wide" else 2.0) for _ in range(size)])
    if kind == "ties":
        scores = np.round(scores * 2) / 2
    elif kind == "all_equal":
        scores[:] = rng.choice((-3.0, 0.0, 7.0))
    elif kind == "one_far":
        scores[rng.randrange(size)] = 25.0
    elif kind == "minus_infinity":
        scores[[rng.random() < 0.5 for _ in range(size)]] = -np.inf
        scores[rng.randrange(size)] = 1.0
    return scores.astype(np.float32)


def values_of(rng: random.Random, ids: Sequence[int], dry: bool) -> dict[str, Any]:
    shares = (0.1, 0.3, 0.5, 0.7, 0.85, 0.9, 0.95, 0.99)
    offered: dict[str, Any] = {
        "logit_bias": {rng.choice(ids): rng.choice((-3.0, -0.5, 2.0)) for _ in range(3)},
        "repetition_penalty": rng.choice((0.7, 1.1, 1.5)),
        "frequency_penalty": rng.choice((-0.5, 0.25, 1.0)),
        "presence_penalty": rng.choice((-0.5, 0.25, 1.0)),
        "top_n_sigma": rng.choice((0.5, 1.0, 2.0)),
        "top_k": rng.randrange(1, 80),
        "typical_p": rng.choice(shares),
        "top_p": rng.choice(shares),
        "min_p": rng.choice((0.01, 0.05, 0.1, 0.3, 0.6)),
        "xtc_probability": 1.0,  # llama.cpp's own random number says when, so always
    }
    values = {name: value for name, value in offered.items() if rng.random() < 0.35}
    values["temperature"] = rng.choice((0.3, 0.7, 1.0, 1.5, 4.0))
    values["penalty_last_n"] = rng.choice((3, 8, 64))
    values["xtc_threshold"] = rng.choice((0.05, 0.1, 0.3))
    if dry and rng.random() < 0.4:
        values |= {
            "dry_multiplier": rng.choice((0.5, 0.8, 2.0)),
            "dry_base": rng.choice((1.25, 1.75)),
            "dry_allowed_length": rng.choice((1, 2, 3)),
            "dry_penalty_last_n": rng.choice((6, 64)),
        }
    return values


def compare(rows: int, vocabulary: Vocabulary | None) -> Counter[str]:
    """How many rows agreed, differed (and in what), and were not decided."""
    rng = random.Random(6)
    breakers = frozenset() if vocabulary is None else vocabulary.holding(BREAKERS)
    counts: Counter[str] = Counter()
    while counts["equal"] + counts["set"] + counts["probability"] < rows:
        size = rng.choice(SIZES)
        few = rng.sample(range(size), min(size, 4))  # so that there are repeats
        values = values_of(rng, few, vocabulary is not None)
        prompt, output = ([rng.choice(few) for _ in range(rng.randrange(40))] for _ in "ab")
        history = History(prompt, output, breakers)
        row = scores_of(rng, size)
        if near_a_bound(row, history, values):
            counts["near a bound"] += 1
            continue
        differs = difference(ours(row, history, values), theirs(row, history, values, vocabulary))
        banned = "top_n_sigma" in values or bool(np.isneginf(row).any())
        if "typical_p" in values and banned:
            counts["typical with tokens of -inf"] += 1
            counts["of these not equal"] += differs is not None
            continue
        counts[differs or "equal"] += 1
        counts["with DRY"] += "dry_multiplier" in values
        if differs is not None and counts[differs] <= 3:
            print(f"{differs}: {size} scores from {row.min():g} to {row.max():g}, {values}")
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description="our preset beside llama.cpp's sampler chain")
    parser.add_argument("--rows", type=int, default=2_000)
    parser.add_argument("--vocabulary", help="a GGUF file, for DRY")
    asked = parser.parse_args()
    vocabulary = Vocabulary(asked.vocabulary) if asked.vocabulary else None
    print(f"llama-cpp-python {llama_cpp.__version__}, NumPy {np.__version__}")
    for name, count in compare(asked.rows, vocabulary).items():
        print(f"{count:>8,}  {name}")


if __name__ == "__main__":
    main()
