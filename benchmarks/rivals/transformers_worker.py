"""transformers and torch in bf16, from a folder that was dequantised from the GGUF file once.

The folder is made in a process of its own and kept in `cache`; that time is not counted, so the
first token of a fresh process is that of a bf16 checkpoint.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
import transformers
from protocol import Stepwise, serve


class Transformers(Stepwise):
    def load(self, path: str, threads: int, context: int, cache: str) -> dict[str, object]:
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        folder = Path(cache) / f"{Path(path).stem}-bf16"
        if not (folder / "config.json").is_file():
            command = (sys.executable, __file__, path, str(folder))
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["no message"])[-1]
                raise RuntimeError(f"cannot dequantise: {last}")
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
        self._model = model.eval()
        return {
            "version": f"transformers {transformers.__version__}, torch {torch.__version__}",
            "build": f"bf16 folder, {torch.backends.cpu.get_cpu_capability()}",
            "vocabulary": model.config.vocab_size,
        }

    def clear(self) -> None:
        self._cache = transformers.DynamicCache(config=self._model.config)

    def read(self, prompt: Sequence[int]) -> int:
        out = self._model(
            input_ids=torch.tensor([list(prompt)]),
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return int(out.logits[0, -1].argmax())

    def step(self, token: int) -> int:
        return self.read((token,))


def dequantise(path: Path, folder: Path) -> None:
    """Writes the model of a GGUF file as a bf16 checkpoint; the folder appears when it is whole."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.bfloat16
    )
    model.hf_quantizer = None  # the weights are plain by now, but a model so marked is not saved
    del model.config.quantization_config
    started = folder.with_name(f"{folder.name}.{os.getpid()}")
    model.save_pretrained(started)
    started.rename(folder)


if __name__ == "__main__":
    if sys.argv[1:]:
        dequantise(Path(sys.argv[1]), Path(sys.argv[2]))
    else:
        serve(Transformers())
