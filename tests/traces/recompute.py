"""A stranger's script: every stage of every token, from the JSON of a full trace alone."""

from __future__ import annotations

import base64
import struct
from collections import Counter
from math import exp, fsum
from typing import Any


def scores_of(best: dict[str, Any]) -> dict[int, float]:
    """The score of each token id; all of them where the trace is full."""
    if "ids" in best:
        return dict(zip(best["ids"], best["scores"], strict=True))
    packed = {name: base64.b64decode(best[f"{name}_base64"]) for name in ("ids", "scores")}
    count = len(packed["ids"]) // 4
    ids = struct.unpack(f"<{count}i", packed["ids"])
    return dict(zip(ids, struct.unpack(f"<{count}f", packed["scores"]), strict=True))


def recompute(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """For each token: what the stages from the temperature on left, and where the draw fell."""
    value = {name: entry["value"] for name, entry in trace["sampling"].items()}
    engine, output, found = value["sampler"], list[int](), list[dict[str, Any]]()
    for step in trace["steps"]:
        row, seen = scores_of(step["best"]), trace["prompt"]["ids"] + output
        last = 0 if value["penalty_last_n"] == -1 else -value["penalty_last_n"]
        for token, bias in value["logit_bias"].items():
            row[int(token)] += bias
        for token in set(seen[last:]):
            penalty = value["repetition_penalty"]
            row[token] = row[token] / penalty if row[token] > 0 else row[token] * penalty
        counted = Counter((seen if engine == "llama.cpp" else output)[last:])
        for token, times in counted.items():
            row[token] -= times * value["frequency_penalty"] + value["presence_penalty"]
        left, stages = sorted(row, key=lambda token: (-row[token], token)), []
        output.append(step["id"])
        if value["temperature"] == 0:
            found.append({"stages": [(1, 1.0)], "token": left[0], "interval": None})
            continue
        tempered, p = 1.0, dict[int, float]()
        order = value["stages"][value["stages"].index("mask") + 1 :]
        for name in order:
            if name == "temperature":
                tempered = value["temperature"]
            if name == "temperature" or not p:
                weights = {token: exp((row[token] - row[left[0]]) / tempered) for token in left}
                whole = fsum(weights.values())
                p = {token: weight / whole for token, weight in weights.items()}
            if name == "top_k" and value["top_k"]:
                least = row[left[min(value["top_k"], len(left)) - 1]]
                ties = [token for token in left if row[token] >= least]
                left = ties if engine == "transformers" else left[: value["top_k"]]
            if name == "top_p" and value["top_p"] < 1:
                held = 1 if engine == "default" else fsum(p[token] for token in left)
                share, mass = 0, 0.0
                while share < len(left) and mass < value["top_p"] * held - 1e-12:
                    mass, share = mass + p[left[share]], share + 1
                left = left[: max(share, 1)]
            if name == "min_p":
                bound = value["min_p"] * p[left[0]] * (1 - 1e-12)
                left = [token for token in left if p[token] >= bound]
            stages.append((len(left), fsum(p[token] for token in left)))
        total, start, token = stages[-1][1], 0.0, left[-1]
        for token in left:
            end = start + p[token] / total
            if step["random"] < end:
                break
            start = end
        found.append({"stages": stages, "token": token, "interval": (start, end)})
        found[-1]["factor"] = 1 / total
    return found
