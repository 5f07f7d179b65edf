"""Phi-3, Phi-3.5, Phi-4 and Phi-4-mini, text.

Differs from `llama.py`: query, key and value are one table, as are gate and up; every layer sees a
sliding window where the config sets one; a part of each head is turned where the config says so
(Phi-4-mini); `longrope` divides each angle by a factor of its own and lengthens what is turned.
Its long factors would turn every token of a sequence anew once that grows beyond
`original_max_position_embeddings`; up to there the short factors hold, and a sequence ends there.

GGUF files name the fused tables `attn_qkv` and `ffn_up`. A stated window of 0 is none.

Source: arXiv:2404.14219 section 2, arXiv:2412.08905. Weight names as in the checkpoints.
"""

from __future__ import annotations

from forwardpass.architectures.family import LLAMA_TENSORS, Family, GgufNames, Stored, Transform
from forwardpass.architectures.mistral import window_every_layer
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.config_rope import RopeSpec
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import Graph, Role


def build(config: ModelConfig) -> Graph:
    """The graph of a Phi-3 with these sizes."""
    g = GraphBuilder(config)
    d, f = config.hidden_size, config.intermediate_size
    q_width = config.num_attention_heads * config.head_dim
    kv_width = config.num_key_value_heads * config.head_dim
    k_end, v_end = q_width + kv_width, q_width + 2 * kv_width
    x = g.embed("model.embed_tokens")  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"model.layers.{i}", i):
            y = g.rms_norm(x, "input_layernorm")
            qkv = g.linear(y, "self_attn.qkv_proj", v_end, Role.QKV)  # n (h + 2g)e
            q = g.rope(g.heads(g.columns(qkv, 0, q_width)), config.rope(i))  # n h e
            k = g.rope(g.heads(g.columns(qkv, q_width, k_end)), config.rope(i))  # n g e
            v = g.heads(g.columns(qkv, k_end, v_end))  # n g e
            y = g.flat(g.attention(q, k, v, window=config.window(i)))  # n (h e)
            x = g.add(x, g.linear(y, "self_attn.o_proj", d, Role.ATTENTION_OUTPUT))
            y = g.rms_norm(x, "post_attention_layernorm")
            both = g.linear(y, "mlp.gate_up_proj", 2 * f, Role.MLP_UP)  # n 2f
            y = g.silu_multiply(g.columns(both, 0, f), g.columns(both, f, 2 * f))  # n f
            x = g.add(x, g.linear(y, "mlp.down_proj", d, Role.MLP_DOWN))
    x = g.rms_norm(g.wanted_rows(x), "model.norm")  # r d
    return g.finish(g.head(x, tied_to="model.embed_tokens"))  # r v


def _what_files_say_their_way(config: dict[str, object]) -> None:
    """A window of 0 is none; the trained length is a key of the config, not of its rope."""
    if not config.get("sliding_window"):
        config["sliding_window"] = None
    scaling = config.get("rope_scaling")
    if isinstance(scaling, dict) and (key := "original_max_position_embeddings") in scaling:
        config[key] = scaling[key]


_FUSED: dict[str, Stored] = {
    f"model.layers.{{i}}.{ours}.weight": (f"blk.{{i}}.{theirs}.weight", Transform.AS_STORED)
    for ours, theirs in {
        "self_attn.qkv_proj": "attn_qkv",
        "mlp.gate_up_proj": "ffn_up",
    }.items()
}
_KEPT = ("embed_tokens", "norm", "lm_head", "layernorm", "o_proj", "down_proj")

FAMILY = Family(
    "phi3",
    spec=ConfigSpec(
        understood=frozenset({"sliding_window", "original_max_position_embeddings"}),
        defaults={
            "vocab_size": 32_064,
            "hidden_size": 3_072,
            "intermediate_size": 8_192,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "max_position_embeddings": 4_096,
            "original_max_position_embeddings": 4_096,
            "hidden_act": "silu",
            "norm_eps": 1e-5,
            "tie_word_embeddings": False,
            # Settings of the code that the checkpoints came with, at the values of all of them.
            "full_attn_mod": 1,
            "interpolate_factor": 1,
        },
        accepts={"hidden_act": ("silu",)},
        derive=window_every_layer,
        # The first releases called it by other names.
        ropes=RopeSpec(
            kinds={
                "default": "default",
                "longrope": "longrope",
                "su": "longrope",
                "yarn": "longrope",
            }
        ),
        partial_rotary=1.0,
    ),
    build=build,
    gguf=GgufNames(
        "phi3",
        tensors={
            **{
                ours: stored
                for ours, stored in LLAMA_TENSORS.items()
                if ours.rpartition(".")[0].endswith(_KEPT)
            },
            **_FUSED,
            "rope_factors_short.weight": ("rope_factors_short.weight", Transform.AS_STORED),
        },
        keys={"attention.sliding_window": "sliding_window"},
        finish=_what_files_say_their_way,
    ),
    buffers=(r".*rotary_emb\.inv_freq", r"gguf: rope_factors_long\.weight"),
)
