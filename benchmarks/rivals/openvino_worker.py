"""OpenVINO GenAI, its own pipeline on the GGUF file; the times are those of its own metrics.

It has no call for one pass, so a prompt is `generate` of one token (time to the first), and
passes of one token are the gaps between the tokens of a longer `generate`. What `hold` reads
stays in its prefix cache. It finds no 5-bit blocks and no Gemma 3 in GGUF files.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import openvino
import openvino_genai
from protocol import Timed, serve


class OpenVino:
    def load(self, path: str, threads: int, context: int, cache: str) -> dict[str, object]:
        self._pipeline = openvino_genai.LLMPipeline(path, "CPU", INFERENCE_NUM_THREADS=threads)
        self._held: list[int] = []
        core = openvino.Core()
        abilities = ", ".join(core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"))
        return {
            "version": f"openvino-genai {openvino_genai.__version__}",
            "build": f"openvino {openvino.__version__}; CPU: {abilities}",
            "vocabulary": 0,
        }

    def prefill(self, prompt: Sequence[int]) -> Timed:
        tokens, first, _ = self._generate(prompt, 1)
        return Timed(first, len(prompt), tokens[-1])

    def decode(self, prompt: Sequence[int], count: int) -> Timed:
        tokens, _, seconds = self._generate(prompt, count + 1)
        return Timed(seconds, count, tokens[-1])

    def hold(self, prompt: Sequence[int]) -> Timed:
        done = self.prefill(prompt)
        self._held = list(prompt)
        return done

    def more(self, count: int) -> Timed:
        tokens, _, seconds = self._generate(self._held, count + 1)
        self._held += tokens[:-1]
        return Timed(seconds, count, tokens[-1])

    def _generate(self, prompt: Sequence[int], count: int) -> tuple[list[int], float, float]:
        """Greedy tokens, seconds to the first, and seconds from the first to the last."""
        ids = np.array([list(prompt)], dtype=np.int64)
        inputs = openvino_genai.TokenizedInputs(
            openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids))
        )
        settings = openvino_genai.GenerationConfig()
        settings.max_new_tokens = count
        settings.ignore_eos = True
        settings.do_sample = False
        done = self._pipeline.generate(inputs, settings)
        tokens = [int(token) for token in done.tokens[0]]
        if len(tokens) != count:
            raise RuntimeError(f"{len(tokens)} tokens, {count} were asked for")
        raw = done.perf_metrics.raw_metrics
        return tokens, 1e-6 * raw.m_times_to_first_token[0], 1e-6 * sum(raw.m_durations)


if __name__ == "__main__":
    serve(OpenVino())
