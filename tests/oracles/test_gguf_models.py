"""The tiny models through GGUF, written by the official package with llama.cpp's conventions."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

import forwardpass as fp
from forwardpass.config import ModelConfig
from forwardpass.rope import Rope
from oracles.families import BY_NAME, Case, judge, random_model, transformers_logits
from oracles.gguf_models import Type, write_gguf_model
from oracles.gpt_gguf import GPT_CASES, sayable
from oracles.loading import TOLERANCE, described, distance, loaded, logits, relative

Record = TypeVar("Record", ModelConfig, Rope)
_NAMES = (
    *("gpt2", "gpt2-untied", "llama", "llama-biases", "llama-tied", "llama-scaled"),
    *("llama-linear", "llama-ungrouped", "qwen2", "qwen3", "gemma3", "gemma3-capped"),
    *("llama-yarn-truncated", "mistral", "mistral-full", "gemma", "gemma-biases", "gemma2"),
    *("phi3", "phi3-windows", "phi3-longrope", "phi3-partial", "olmo2", "olmo2-biases"),
    *("olmo3", "olmo3-yarn", "granite", "granite-biases", "smollm3", "cohere", "cohere-norms"),
    *("mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "gpt_oss"),
    *GPT_CASES,
)


def case_of(name: str) -> Case:
    """The case, less what a GGUF cannot say.

    That is Gemma's scale, which of Gemma 3's layers slide, a head of its own in Gemma and Command
    R, where gpt-oss clamps, and by how much YaRN lengthens if that does not follow from its factor.
    """
    case = BY_NAME[name]
    if name in GPT_CASES:
        return replace(case, config=sayable(case.model_type, case.config))
    changes: dict[str, object] = {}
    if case.model_type == "gemma3_text":
        changes = {"layer_types": None, "num_hidden_layers": 7, "query_pre_attn_scalar": 16}
    elif case.model_type in ("gemma", "cohere"):
        changes = {"tie_word_embeddings": True}
    elif case.model_type == "gemma2":
        changes = {"query_pre_attn_scalar": 16}
    elif case.model_type == "gpt_oss":
        changes = {"swiglu_limit": 7.0}
    elif name == "llama-yarn-truncated":
        rope = case.config["rope_parameters"]
        assert isinstance(rope, dict)
        changes = {"rope_parameters": {**rope, "attention_factor": None}}
    return replace(case, config={**case.config, **changes})


@pytest.mark.parametrize("name", _NAMES)
def test_a_gguf_of_float32_gives_the_logits_of_the_folder(name: str, tmp_path: Path) -> None:
    case = case_of(name)
    judged = judge(case, tmp_path)
    write_gguf_model(random_model(case), tmp_path / "model.gguf", Type.F32)
    ours, folder = loaded(tmp_path / "model.gguf"), loaded(tmp_path)
    found = relative(logits(ours, judged.tokens), logits(folder, judged.tokens))
    print(f"{name}: {found:.1e} of the largest logit from the folder")
    # These go through divisors rounded to float32, and positions magnify that.
    assert found <= (1e-5 if name in ("llama-scaled", "phi3-longrope", "gpt_oss") else 1e-6)
    assert distance(ours, judged) <= TOLERANCE
    # The divisors of rope angles that some files store were not learned.
    counted, plain = fp.count(tmp_path / "model.gguf"), fp.count(tmp_path)
    assert counted.parameters.unique == plain.parameters.unique
    assert counted.flop_per_token == plain.flop_per_token


@pytest.mark.parametrize("kind", [Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0], ids=lambda t: t.name)
@pytest.mark.parametrize("name", _NAMES)
def test_a_gguf_of_fewer_bits_gives_the_logits_of_transformers_with_its_weights(
    name: str, kind: Type, tmp_path: Path
) -> None:
    model = random_model(case_of(name))
    stored = write_gguf_model(model, tmp_path / "model.gguf", kind)
    model.load_state_dict(stored, strict=False)
    tokens = [int(t) for t in np.random.default_rng(3).integers(0, model.config.vocab_size, 42)]
    ours = logits(loaded(tmp_path / "model.gguf"), tokens)
    assert relative(ours, transformers_logits(model, tokens)) <= TOLERANCE


@pytest.mark.parametrize("name", _NAMES)
def test_a_gguf_and_the_folder_have_one_config(name: str, tmp_path: Path) -> None:
    model = random_model(case_of(name))
    model.save_pretrained(tmp_path)
    write_gguf_model(model, tmp_path / "model.gguf", Type.F32)
    file, folder = described(tmp_path / "model.gguf").config, described(tmp_path).config
    if name == "mistral-full":
        assert file.model_type == "llama"  # which without a window it is
        folder = replace(folder, model_type="llama")
    assert comparable(file) == comparable(folder)


def comparable(config: ModelConfig) -> ModelConfig:
    """Without what a GGUF says by its tensors, or by leaving it out; numbers rounded to float32."""
    ropes = {
        kind: rounded(Rope(rope.theta) if rope.kind == "llama3" else replace(rope, short_factor=()))
        for kind, rope in config.rope_parameters.items()
    }
    return replace(
        rounded(config),
        rope_parameters=ropes,
        rope_factors=False,
        dtype="float32",
        query_pre_attn_scalar=config.query_pre_attn_scalar or config.head_dim,
    )


def rounded(record: Record) -> Record:
    """The dataclass with every float rounded to float32."""
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    floats = {
        name: float(np.float32(value)) for name, value in values.items() if isinstance(value, float)
    }
    return replace(record, **floats)  # type: ignore[arg-type]
