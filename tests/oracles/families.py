"""Tiny random models of transformers' own classes, one or more a family, and their logits.

Weights are drawn so that nothing can be left out unnoticed: biases are as large as what they are
added to, gains lie around 1 with a deviation of 0.4, and an epsilon is large enough to be seen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from forwardpass.graph.references import F32
from oracles.gpt_like import GPT_LIKE
from oracles.latent_like import LATENT_LIKE
from oracles.llama_like import LLAMA_LIKE
from oracles.moe_like import MOE_LIKE, SHARDS

FAMILY_CASES = {**LLAMA_LIKE, **GPT_LIKE, **MOE_LIKE, **LATENT_LIKE}
PROMPT, STEPS = 37, 5
VOCABULARY = 97


@dataclass(frozen=True)
class Case:
    """A family's config for transformers, and the size of a shard where it is saved in shards."""

    name: str
    model_type: str
    config: dict[str, object] = field(default_factory=dict)
    shard: str | None = None

    def __str__(self) -> str:
        return self.name


# hidden_size / num_attention_heads is 8, head_dim 16; every axis fills blocks of 32.
_SIZES: dict[str, object] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "rms_norm_eps": 0.01,
}
_WINDOWS: dict[str, object] = {
    "num_hidden_layers": 3,
    "use_sliding_window": True,
    "sliding_window": 8,
    "max_window_layers": 1,
}
_LLAMA3: dict[str, object] = {
    "rope_type": "llama3",
    "rope_theta": 1000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_GEMMA: dict[str, object] = {
    **_SIZES,
    "num_hidden_layers": 4,
    "sliding_window": 8,
    "query_pre_attn_scalar": 24,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 5000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
    },
}
_GPT2: dict[str, object] = {
    "vocab_size": VOCABULARY,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 64,
    "layer_norm_epsilon": 0.01,
}

CASES = (
    Case("gpt2", "gpt2", {**_GPT2}),
    Case("gpt2-gelu", "gpt2", {**_GPT2, "activation_function": "gelu"}),
    Case("gpt2-untied", "gpt2", {**_GPT2, "n_inner": 96, "tie_word_embeddings": False}),
    Case("llama", "llama", {**_SIZES}, shard="20KB"),
    Case("llama-biases", "llama", {**_SIZES, "attention_bias": True, "mlp_bias": True}),
    Case("llama-tied", "llama", {**_SIZES, "tie_word_embeddings": True}),
    Case("llama-scaled", "llama", {**_SIZES, "rope_parameters": _LLAMA3}),
    Case(
        "llama-linear",
        "llama",
        {**_SIZES, "rope_parameters": {"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0}},
    ),
    Case("llama-ungrouped", "llama", {**_SIZES, "num_key_value_heads": 4, "head_dim": 8}),
    Case("qwen2", "qwen2", {**_SIZES, "tie_word_embeddings": True}),
    Case("qwen2-windows", "qwen2", {**_SIZES, **_WINDOWS}),
    Case("qwen3", "qwen3", {**_SIZES, "tie_word_embeddings": True}),
    Case("qwen3-windows", "qwen3", {**_SIZES, **_WINDOWS, "attention_bias": True}),
    Case("gemma3", "gemma3_text", {**_GEMMA}),
    Case(
        "gemma3-capped",
        "gemma3_text",
        {
            **_GEMMA,
            "final_logit_softcapping": 3.0,
            "attention_bias": True,
            "tie_word_embeddings": False,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 8.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
            },
        },
        shard="30KB",
    ),
    *(
        Case(name, model_type, {**config}, SHARDS.get(name))
        for name, (model_type, config) in FAMILY_CASES.items()
    ),
)
BY_NAME = {case.name: case for case in CASES}


@dataclass(frozen=True)
class Judged:
    """A saved model, the tokens that it was asked about and the logits that transformers gave."""

    case: Case
    folder: Path
    tokens: list[int]
    prompt: F32  # one row a token of the prompt
    steps: F32  # one row a decode step


def judge(case: Case, folder: Path) -> Judged:
    """Builds the case's model, saves it in `folder` and asks it."""
    model = random_model(case)
    model.save_pretrained(folder, max_shard_size=case.shard or "1GB")
    tokens = [int(t) for t in np.random.default_rng(3).integers(0, VOCABULARY, PROMPT + STEPS)]
    prompt, steps = transformers_logits(model, tokens)
    return Judged(case, folder, tokens, prompt, steps)


def random_model(case: Case) -> PreTrainedModel:
    """The case's model in float32, eager attention, all weights drawn anew."""
    config = AutoConfig.for_model(case.model_type, **case.config)
    model = AutoModelForCausalLM.from_config(
        config, attn_implementation="eager", dtype=torch.float32
    )
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        steering = [(n, b) for n, b in model.named_buffers() if n.endswith("correction_bias")]
        for name, weight in (*model.named_parameters(), *steering):
            values = torch.randn(weight.shape, generator=generator)
            weight.copy_(_scaled(values, name, case.model_type))
    return model.eval()


def _scaled(values: torch.Tensor, name: str, model_type: str) -> torch.Tensor:
    if name.endswith("bias"):
        return 0.5 * values
    if values.dim() == 1 or "norm" in name:
        around = 0.0 if model_type.startswith("gemma") else 1.0  # Gemma stores gains less 1
        return around + 0.4 * values
    if any(table in name for table in ("embed", "wte", "wpe")):
        return 0.7 * values
    turned = model_type == "gpt2" and "lm_head" not in name
    turned |= model_type == "gpt_oss" and values.dim() == 3
    return 1.5 * values / values.shape[-2 if turned else -1] ** 0.5


def transformers_logits(model: PreTrainedModel, tokens: list[int]) -> tuple[F32, F32]:
    """Logits of the prompt's rows, and of each decode step behind it, with transformers' cache."""
    ids, rows = torch.tensor([tokens]), []
    with torch.no_grad():
        out = prompt = model(input_ids=ids[:, :PROMPT], use_cache=True)
        for position in range(PROMPT, len(tokens)):
            # Newer versions call it `cache`, and still answer to the old name.
            name = next(key for key in ("cache", "past_key_values") if key in out)
            cache = {name: out[name]}
            out = model(input_ids=ids[:, position : position + 1], use_cache=True, **cache)
            rows.append(out.logits[0, -1])
    return prompt.logits[0].numpy(), torch.stack(rows).numpy()
