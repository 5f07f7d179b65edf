"""Runs `forwardpass count` inside a test, away from the models and the hub of whoever runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from formats.safetensors_writer import TensorData
from forwardpass.cli.main import main

TINY: dict[str, object] = {
    "model_type": "llama",
    "vocab_size": 32,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 64,
    "torch_dtype": "bfloat16",
}
TINY_TENSORS: dict[str, tuple[int, ...]] = {
    "model.embed_tokens.weight": (32, 8),
    "model.layers.0.input_layernorm.weight": (8,),
    **{f"model.layers.0.self_attn.{side}_proj.weight": (8, 8) for side in "qkvo"},
    "model.layers.0.post_attention_layernorm.weight": (8,),
    "model.layers.0.mlp.gate_proj.weight": (16, 8),
    "model.layers.0.mlp.up_proj.weight": (16, 8),
    "model.layers.0.mlp.down_proj.weight": (8, 16),
    "model.norm.weight": (8,),
    "lm_head.weight": (32, 8),
}


class Counting:
    """The command, called with its arguments."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *arguments: object) -> list[str]:
        """The lines of standard output of a command that ends well and warns of nothing."""
        status = main(["count", *map(str, arguments)])
        captured = self.capsys.readouterr()
        assert status == 0, captured.err
        assert captured.err == ""
        return captured.out.splitlines()

    def json(self, *arguments: object) -> Any:
        """What the command answers with --json."""
        return json.loads("\n".join(self(*arguments, "--json")))

    def refused(self, *arguments: object) -> tuple[int, str]:
        """Exit status and message of a command that fails."""
        status = main(["count", *map(str, arguments)])
        captured = self.capsys.readouterr()
        assert status != 0
        assert captured.out == ""
        assert captured.err.startswith("error: ")
        return status, captured.err


def leave_alone(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """Makes `home` the place of models and of the hub's cache."""
    monkeypatch.setenv("FORWARDPASS_HOME", str(home / "models"))
    monkeypatch.setenv("HF_HOME", str(home / "hub"))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("FORWARDPASS_CATALOGUE", raising=False)


def count_at_hub(url: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """`forwardpass count` in a process of its own, with a hub at `url`."""
    return subprocess.run(
        [sys.executable, "-m", "forwardpass", "count", *map(str, arguments)],
        env={**os.environ, "HF_ENDPOINT": url},
        capture_output=True,
        encoding="utf-8",
    )


def holes(shapes: dict[str, tuple[int, ...]], dtype: str = "BF16") -> dict[str, TensorData]:
    """Tensors of these shapes whose data are holes in the file."""
    return {name: TensorData(dtype, shape, None) for name, shape in shapes.items()}


def tiny_folder(folder: Path, **changes: object) -> Path:
    """A folder with the config of a tiny model, changed as said."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**TINY, **changes}))
    return folder
