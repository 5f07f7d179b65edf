"""A folder like that of Qwen3-0.6B: its config, and its tensors' names and shapes over a hole.

The published file stores the table of embedding and head twice, under both names.
"""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path

# As in the published config.json, less what cannot change a count.
CONFIG: dict[str, object] = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "max_position_embeddings": 40960,
    "max_window_layers": 28,
    "model_type": "qwen3",
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_sliding_window": False,
    "vocab_size": 151936,
}
_LAYER = {
    "input_layernorm": (1024,),
    "mlp.down_proj": (1024, 3072),
    "mlp.gate_proj": (3072, 1024),
    "mlp.up_proj": (3072, 1024),
    "post_attention_layernorm": (1024,),
    "self_attn.k_norm": (128,),
    "self_attn.k_proj": (1024, 1024),
    "self_attn.o_proj": (1024, 2048),
    "self_attn.q_norm": (128,),
    "self_attn.q_proj": (2048, 1024),
    "self_attn.v_proj": (1024, 1024),
}
_LENGTH_WORD, HEADER = 8, 35_560


def shapes() -> dict[str, tuple[int, ...]]:
    """Every stored tensor with its shape, in bf16."""
    return {
        "lm_head.weight": (151936, 1024),
        "model.embed_tokens.weight": (151936, 1024),
        **{
            f"model.layers.{layer}.{name}.weight": shape
            for layer in range(28)
            for name, shape in _LAYER.items()
        },
        "model.norm.weight": (1024,),
    }


def write_folder(folder: Path) -> Path:
    """Writes config.json and model.safetensors of the published sizes; the data take no disk."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes().items():
        begin, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode().ljust(HEADER - _LENGTH_WORD)
    assert len(text) == HEADER - _LENGTH_WORD
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(HEADER + end)
    return folder
