"""The samplers that benchmarks/sampler.py times: each takes tokens from one row of float32 scores.

    python benchmarks/rivals/sampler_sides.py {forwardpass,llama.cpp,transformers}

Answers one JSON object a line: {"do": "load", "row": PATH.npy}, {"do": "time", "setting", "count"}.
A reply to `time` has the seconds of each call, and `apart` the seconds of what else the call
needs and another side may not. Needs NumPy and the engine's own library; ours runs the package.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np

# temperature, top_k, top_p; 0 and 1 are off.
SETTINGS: dict[str, tuple[float, int, float]] = {
    "greedy": (0.0, 0, 1.0),
    "temperature 1.0": (1.0, 0, 1.0),
    "temperature 0.7": (0.7, 0, 1.0),
    "top-k 20, top-p 0.95": (0.7, 20, 0.95),
}
Take = Callable[[int], int]  # a token, by the number of the call


class Ours:
    """`Sampler.pick`, with the 256 best scores and what every stage left."""

    def __init__(self) -> None:
        from forwardpass import _native
        from forwardpass.sampling.sampler import Sampler
        from forwardpass.sampling.settings import resolve

        self._resolve, self._sampler = resolve, Sampler
        self.version = f"forwardpass, {_native.levels()[0]}"

    def load(self, row: Any) -> None:
        self._row = row

    def setting(self, temperature: float, top_k: int, top_p: float) -> tuple[Take, Take]:
        asked = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": 1}
        sampler = self._sampler(self._resolve(asked))
        row = self._row
        return (
            lambda i: sampler.pick(row, prompt=(), output=(), position=i).token,
            lambda i: 0,
        )


class LlamaCpp:
    """`llama_sampler_chain`, in the order that its own programs build it: top-k, top-p,
    temperature, dist; greedy alone at temperature 0. `apart`: the fill of the array of candidates,
    which the chain reorders, so that each call needs it; as llama_sampler_sample does it, but
    copied from a filled one."""

    def __init__(self) -> None:
        import llama_cpp

        self._lib = llama_cpp
        self.version = f"llama-cpp-python {version('llama-cpp-python')}"

    def load(self, row: Any) -> None:
        kind = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
        self._filled = np.zeros(row.size, kind)
        self._filled["id"] = np.arange(row.size)
        self._filled["logit"] = row
        self._work = self._filled.copy()

    def setting(self, temperature: float, top_k: int, top_p: float) -> tuple[Take, Take]:
        lib, work, filled = self._lib, self._work, self._filled
        chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        if temperature == 0:
            lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_greedy())
        else:
            if top_k:
                lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_top_k(top_k))
            if top_p < 1:
                lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_top_p(top_p, 1))
            lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_temp(temperature))
            lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_dist(1))
        import ctypes

        data = work.ctypes.data_as(ctypes.POINTER(lib.llama_token_data))
        array = lib.llama_token_data_array(data=data, size=work.size, selected=-1, sorted=False)

        bytes_of, source = work.view(np.uint8), filled.view(np.uint8)

        def fill(_: int) -> int:
            np.copyto(bytes_of, source)
            array.data = data
            array.size, array.selected, array.sorted = work.size, -1, False
            return 0

        def take(_: int) -> int:
            lib.llama_sampler_apply(chain, array)
            return int(array.data[array.selected].id)

        return take, fill


class Transformers:
    """The logits processors of `generate`, softmax and multinomial; argmax at temperature 0."""

    def __init__(self) -> None:
        import torch

        torch.set_num_threads(1)
        self._torch = torch
        self.version = f"transformers {version('transformers')}, torch {torch.__version__}"

    def load(self, row: Any) -> None:
        self._row = self._torch.from_numpy(row)[None]

    def setting(self, temperature: float, top_k: int, top_p: float) -> tuple[Take, Take]:
        from transformers.generation import logits_process as p

        torch, row = self._torch, self._row
        if temperature == 0:
            return (lambda i: int(torch.argmax(row, dim=-1))), (lambda i: 0)
        steps: list[Any] = []
        if temperature != 1:
            steps.append(p.TemperatureLogitsWarper(temperature))
        if top_k:
            steps.append(p.TopKLogitsWarper(top_k))
        if top_p < 1:
            steps.append(p.TopPLogitsWarper(top_p))
        processors = p.LogitsProcessorList(steps)
        generator = torch.Generator().manual_seed(1)

        def take(_: int) -> int:
            with torch.inference_mode():
                scores = processors(None, row)
                chances = torch.softmax(scores, dim=-1)
                return int(torch.multinomial(chances, 1, generator=generator))

        return take, lambda i: 0


SIDES: dict[str, Callable[[], Any]] = {
    "forwardpass": Ours,
    "llama.cpp": LlamaCpp,
    "transformers": Transformers,
}


def timed(side: Any, name: str, count: int) -> dict[str, object]:
    """Median microseconds of `count` calls: the choice, and what comes before it."""
    take, fill = side.setting(*SETTINGS[name])
    for i in range(3):
        fill(i)
        take(i)
    choices, fills = [], []
    for i in range(count):
        start = time.perf_counter()
        fill(i)
        middle = time.perf_counter()
        take(i)
        choices.append(time.perf_counter() - middle)
        fills.append(middle - start)
    return {"us": 1e6 * float(np.median(choices)), "apart": 1e6 * float(np.median(fills))}


def main() -> None:
    """Answers requests until stdin ends."""
    side = SIDES[sys.argv[1]]()
    print(json.dumps({"version": side.version}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "load":
            side.load(np.load(request["row"]))
            reply: dict[str, object] = {}
        else:
            reply = timed(side, request["setting"], request["count"])
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
