"""StableLM 3B, StableLM 2 1.6B and 12B, Stable Code 3B.

Differs from `llama.py`: norms center and have a bias (LayerNorm); only the first quarter of each
head turns unless the config says otherwise; `use_qkv_bias` gives query, key and value a bias and
the output none; `qk_layernorm` normalises each query and key head by a gain of its own before
rope; `use_parallel_residual` gives attention and MLP the same input and adds both at once.

Source: arXiv:2402.17834 section 3; https://huggingface.co/stabilityai/stablelm-2-12b (12B). Weight
names as in the checkpoints, but for the head norms, whose vectors (`….norms.0.weight` to
`….norms.{h-1}.weight`) are one table here, as in GGUF files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from forwardpass.architectures.family import LLAMA_TENSORS, Family, GgufNames, Stored, Transform
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.errors import ConfigError
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import Graph, Role


def build(config: ModelConfig) -> Graph:
    """The graph of a StableLM with these sizes."""
    g = GraphBuilder(config)
    d, f, bias = config.hidden_size, config.intermediate_size, config.attention_bias
    kv_width = config.num_key_value_heads * config.head_dim
    x = g.embed("model.embed_tokens")  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"model.layers.{i}", i):
            normed = g.layer_norm(x, "input_layernorm")
            q = g.heads(g.linear(normed, "self_attn.q_proj", d, Role.QKV, bias))  # n h e
            k = g.heads(g.linear(normed, "self_attn.k_proj", kv_width, Role.QKV, bias))  # n g e
            v = g.heads(g.linear(normed, "self_attn.v_proj", kv_width, Role.QKV, bias))  # n g e
            if config.qk_layernorm:
                q = g.head_layer_norm(q, "self_attn.q_layernorm")
                k = g.head_layer_norm(k, "self_attn.k_layernorm")
            q, k = g.rope(q, config.rope(i)), g.rope(k, config.rope(i))
            y = g.flat(g.attention(q, k, v))  # n d
            x = g.add(x, g.linear(y, "self_attn.o_proj", d, Role.ATTENTION_OUTPUT))
            if not config.use_parallel_residual:
                normed = g.layer_norm(x, "post_attention_layernorm")
            gate = g.linear(normed, "mlp.gate_proj", f, Role.MLP_UP)  # n f
            up = g.linear(normed, "mlp.up_proj", f, Role.MLP_UP)  # n f
            x = g.add(x, g.linear(g.silu_multiply(gate, up), "mlp.down_proj", d, Role.MLP_DOWN))
    x = g.layer_norm(g.wanted_rows(x), "model.norm")  # r d
    return g.finish(g.head(x, tied_to="model.embed_tokens"))  # r v


def _told_by_tensors(shapes: Mapping[str, Sequence[int]]) -> dict[str, object]:
    return {
        "qk_layernorm": "blk.0.attn_q_norm.weight" in shapes,
        "use_parallel_residual": "blk.0.ffn_norm.weight" not in shapes,
    }


def _refuse_an_unknown_base(config: dict[str, object]) -> None:
    """GGUF files leave out rope's base: 10,000 where 4,096 positions were trained, else unknown."""
    positions = config["max_position_embeddings"]
    if isinstance(positions, int) and positions > 4_096 and config["rope_theta"] == 10_000.0:
        raise ConfigError(
            f"stablelm.rope.freq_base is missing, which a model of {positions:,} positions needs: "
            "llama.cpp's converter leaves it out",
            advice="The model's own folder (config.json and safetensors) has it.",
        )


_HEAD_NORMS: dict[str, Stored] = {
    f"model.layers.{{i}}.self_attn.{side}_layernorm.weight": (
        f"blk.{{i}}.attn_{side}_norm.weight",
        Transform.AS_STORED,
    )
    for side in ("q", "k")
}
_FINAL_BIAS: dict[str, Stored] = {
    "model.norm.bias": ("output_norm.bias", Transform.AS_STORED),
}

FAMILY = Family(
    "stablelm",
    spec=ConfigSpec(
        understood=frozenset({"attention_bias", "qk_layernorm", "use_parallel_residual"}),
        spellings={"layer_norm_eps": "norm_eps", "use_qkv_bias": "attention_bias"},
        neutral=frozenset({"hidden_dropout"}),
        defaults={
            "vocab_size": 50_304,
            "hidden_size": 2_560,
            "intermediate_size": 6_912,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "max_position_embeddings": 4_096,
            "hidden_act": "silu",
            "norm_eps": 1e-5,
            "tie_word_embeddings": False,
        },
        accepts={"hidden_act": ("silu",)},
        partial_rotary=0.25,
        full_width=True,
    ),
    build=build,
    stacks=(r"(.*\.[qk]_layernorm)\.norms\.(\d+)\.weight",),
    gguf=GgufNames(
        "stablelm",
        tensors={**LLAMA_TENSORS, **_HEAD_NORMS, **_FINAL_BIAS},
        keys={"attention.layer_norm_epsilon": "norm_eps"},
        # llama.cpp goes by the tensors; its converter writes true where the config says nothing.
        neutral=frozenset({"use_parallel_residual"}),
        told_by_tensors=_told_by_tensors,
        finish=_refuse_an_unknown_base,
    ),
)
