"""llama.cpp, by llama-cpp-python's low-level interface: only llama_decode and argmax are timed.

Its own defaults hold (512 tokens a step of a prompt, flash attention where it chooses it, weights
repacked at load, cache in float16), but for the cache of sliding-window layers: it is as long as
the window, as in llama.cpp's programs. Its own rate is that of llama_perf_context.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from importlib.metadata import version

import llama_cpp
import numpy as np
from protocol import Stepwise, serve


class LlamaCpp(Stepwise):
    def load(self, path: str, threads: int, context: int, cache: str) -> dict[str, object]:
        self._quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self._quiet, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        model = llama_cpp.llama_model_load_from_file(
            path.encode(), llama_cpp.llama_model_default_params()
        )
        if not model:
            raise RuntimeError("llama_model_load_from_file returned no model")
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx = settings.n_batch = context
        settings.n_threads = settings.n_threads_batch = threads
        settings.swa_full = False
        settings.no_perf = False
        self._context = llama_cpp.llama_init_from_model(model, settings)
        if not self._context:
            raise RuntimeError("llama_init_from_model returned no context")
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._rows = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
        return {
            "version": f"llama-cpp-python {version('llama-cpp-python')}",
            "build": llama_cpp.llama_print_system_info().decode().strip(),
            "vocabulary": self._rows,
        }

    def clear(self) -> None:
        llama_cpp.llama_memory_clear(self._memory, False)

    def read(self, prompt: Sequence[int]) -> int:
        ids = (llama_cpp.llama_token * len(prompt))(*prompt)
        done = llama_cpp.llama_decode(
            self._context, llama_cpp.llama_batch_get_one(ids, len(prompt))
        )
        if done != 0:
            raise RuntimeError(f"llama_decode returned {done}")
        scores = llama_cpp.llama_get_logits_ith(self._context, -1)
        return int(np.ctypeslib.as_array(scores, shape=(self._rows,)).argmax())

    def step(self, token: int) -> int:
        return self.read((token,))

    def own_rate(self) -> float | None:
        clocks = llama_cpp.llama_perf_context(self._context)
        llama_cpp.llama_perf_context_reset(self._context)
        milliseconds = clocks.t_p_eval_ms + clocks.t_eval_ms
        # Its counters are at least 1, so a count alone does not say that there was a pass.
        tokens = (clocks.n_p_eval if clocks.t_p_eval_ms else 0) + (
            clocks.n_eval if clocks.t_eval_ms else 0
        )
        return 1e3 * tokens / milliseconds if milliseconds else None


if __name__ == "__main__":
    serve(LlamaCpp())
