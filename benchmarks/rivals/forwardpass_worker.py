"""This project: `forwardpass.load`, then the runner's passes and argmax, which alone are timed.

FORWARDPASS_BACKEND names the backend; FORWARDPASS_ISA, which the native one reads, may force a
lower instruction set.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from protocol import Stepwise, serve

import forwardpass


class ForwardPass(Stepwise):
    def load(self, path: str, threads: int, context: int, cache: str) -> dict[str, object]:
        backend = os.environ.get("FORWARDPASS_BACKEND", "native")
        model = forwardpass.load(path, backend=backend, threads=threads)
        self._runner = model.runner
        return {
            "version": f"forwardpass {forwardpass.__version__}",
            "build": f"{backend}, FORWARDPASS_ISA={os.environ.get('FORWARDPASS_ISA', '')}",
            "vocabulary": model.description.config.vocab_size,
        }

    def clear(self) -> None:
        """Gives the last sequence up, so that its memory is free before the next is made."""
        self.__dict__.pop("_sequence", None)

    def read(self, prompt: Sequence[int]) -> int:
        self._sequence = self._runner.prefill(prompt)
        return int(self._sequence.scores.argmax())

    def step(self, token: int) -> int:
        self._runner.decode(self._sequence, token)
        return int(self._sequence.scores.argmax())


if __name__ == "__main__":
    serve(ForwardPass())
