"""Tiny models that load in milliseconds, complete with tokenizer and chat template.

random_folder, random_gguf   the same random llama as a Hugging Face folder and as a GGUF file
scripted_folder              a model that answers one text, whatever it is asked
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np

from architectures.experts import as_stored
from backends.tiny import random_weight
from formats import gguf_writer, safetensors_writer
from forwardpass.describe import describe_config
from forwardpass.graph.references import F32
from text.vocabularies import folder_with, gguf_of, small, trained_bpe

END = "<|im_end|>"
TOKENS = 406  # of the vocabulary
ROWS = 416  # of the tables: more than the vocabulary has, as real models have

CHATML = """\
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking -%}
<think></think>
{%- endif -%}
{%- endif -%}"""

CONFIG: Mapping[str, object] = {
    "model_type": "llama",
    "vocab_size": ROWS,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
}


def random_folder(
    folder: Path,
    *,
    template: str | None = CHATML,
    generation_config: Mapping[str, object] | None = None,
    **config: object,
) -> Path:
    """A folder as the hub has them; `config` adds to config.json or changes it."""
    weights = _random_weights({**CONFIG, **config})
    return _folder(folder, weights, {**CONFIG, **config}, template, generation_config)


def random_gguf(path: Path, *, template: str | None = CHATML, **metadata: object) -> Path:
    """The model of `random_folder` as a GGUF file in F32."""
    written: dict[str, object] = {
        "general.architecture": "llama",
        "llama.block_count": CONFIG["num_hidden_layers"],
        "llama.context_length": CONFIG["max_position_embeddings"],
        "llama.embedding_length": CONFIG["hidden_size"],
        "llama.feed_forward_length": CONFIG["intermediate_size"],
        "llama.attention.head_count": CONFIG["num_attention_heads"],
        "llama.attention.head_count_kv": CONFIG["num_key_value_heads"],
        "llama.attention.key_length": CONFIG["head_dim"],
        "llama.attention.value_length": CONFIG["head_dim"],
        "llama.attention.layer_norm_rms_epsilon": CONFIG["rms_norm_eps"],
        **gguf_of(trained_bpe()),
        "tokenizer.ggml.add_bos_token": False,
        **metadata,
    }
    if template is not None:
        written["tokenizer.chat_template"] = template
    tensors = {}
    for name, values in _random_weights(CONFIG).items():
        stored = _paired(name, values)
        tensors[_gguf_name(name)] = gguf_writer.TensorData("f32", stored.shape, stored.tobytes())
    return gguf_writer.write_gguf(path, written, tensors)


def scripted_folder(
    folder: Path,
    text: str,
    *,
    endless: bool = False,
    template: str | None = CHATML,
    generation_config: Mapping[str, object] | None = None,
    **config: object,
) -> Path:
    """A model whose greedy answer is `text`, or `text` over and over where it is `endless`.

    Every token leads to the next of the text, others to its first: the embedding tells tokens
    apart, the head knows the successor, and the layer between adds nothing. So no token may occur
    in the text twice.
    """
    ids = small().encode(text)
    assert len(set(ids)) == len(ids), "a token has one successor"
    end = small().find(END)
    after = dict(zip(ids, [*ids[1:], ids[0] if endless else end], strict=True))
    shape = {**CONFIG, "hidden_size": ROWS, "num_hidden_layers": 1, **config}
    weights = _random_weights(shape)
    for name in weights:
        if "o_proj" in name or "down_proj" in name:
            weights[name] = np.zeros_like(weights[name])
        elif "norm" in name:
            weights[name] = np.ones_like(weights[name])
    weights["model.embed_tokens.weight"] = np.eye(ROWS, dtype=np.float32)
    head = np.zeros((ROWS, ROWS), np.float32)
    for token in range(ROWS):
        head[after.get(token, ids[0]), token] = 1
    weights["lm_head.weight"] = head
    return _folder(folder, weights, shape, template, generation_config)


@cache
def byte_ids(text: str) -> tuple[int, ...]:
    """The ids of the single bytes of a text."""
    found = {small().token_bytes(i): i for i in range(small().vocab_size)}
    return tuple(found[bytes([byte])] for byte in text.encode())


def _random_weights(config: Mapping[str, object]) -> dict[str, F32]:
    graph = describe_config("tiny", config, accept_unknown=config).graph
    return {name: random_weight(weight) for name, weight in graph.weights.items()}


def _folder(
    folder: Path,
    weights: Mapping[str, F32],
    config: Mapping[str, object],
    template: str | None,
    generation_config: Mapping[str, object] | None,
) -> Path:
    folder_with(folder, trained_bpe(), bos_token="<|begin|>", eos_token=END)
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    if template is not None:
        (folder / "chat_template.jinja").write_text(template, "utf-8")
    if generation_config is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation_config), "utf-8")
    safetensors_writer.write_safetensors(
        folder / "model.safetensors",
        {
            name: safetensors_writer.TensorData("F32", values.shape, values.tobytes())
            for name, values in as_stored(weights, str(config["model_type"])).items()
        },
    )
    return folder


_GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def _gguf_name(name: str) -> str:
    head, _, rest = name.removesuffix(".weight").partition("layers.")
    if not rest:
        return f"{_GGUF_NAMES[head]}.weight"
    layer, _, part = rest.partition(".")
    return f"blk.{layer}.{_GGUF_NAMES[part]}.weight"


def _paired(name: str, values: F32) -> F32:
    """Rows of query and key heads as GGUF has them: the two halves of a head interleaved."""
    for part, heads in (("q_proj", "num_attention_heads"), ("k_proj", "num_key_value_heads")):
        if part in name:
            count, width = CONFIG[heads], values.shape[1]
            assert isinstance(count, int)
            halves = values.reshape(count, 2, -1, width)
            return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(values.shape))
    return values
