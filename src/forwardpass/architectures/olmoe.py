"""OLMoE.

Differs from `llama.py`: query and key are normalised over their whole width, all heads together,
before they are seen by head and turned; many MLPs of `intermediate_size` instead of one, of which a
router chooses some for each token. They weigh what the softmax over all experts gives them, brought
to a sum of 1 where `norm_topk_prob` is set. Checkpoints that clip queries, keys and values
(`clip_qkv`) are refused: the released ones do not.

GGUF files do not say `norm_topk_prob`, which is false.

Source: arXiv:2409.02060 section 2. Weight names as in the checkpoints, where each expert has tables
of its own.
"""

from __future__ import annotations

from forwardpass.architectures.family import LLAMA_TENSORS, Family, GgufNames, expert_tensors
from forwardpass.architectures.mixtral import ROUTER_TRAINING
from forwardpass.architectures.qwen2_moe import EXPERT_KEYS, EXPERT_ROWS
from forwardpass.architectures.qwen3 import HEAD_NORM_TENSORS
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.config_kinds import FLAG, SIZE
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.experts import Routing, router, swiglu_experts
from forwardpass.graph.graph import Graph, Role


def build(config: ModelConfig) -> Graph:
    """The graph of an OLMoE with these sizes."""
    g = GraphBuilder(config)
    d, f, attn = config.hidden_size, config.intermediate_size, config.attention_bias
    q_width = config.num_attention_heads * config.head_dim
    kv_width = config.num_key_value_heads * config.head_dim
    experts, chosen = config.whole("num_experts"), config.whole("num_experts_per_tok")
    routing = Routing(experts, chosen, normal="sum" if config.flag("norm_topk_prob") else "none")
    x = g.embed("model.embed_tokens")  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"model.layers.{i}", i):
            y = g.rms_norm(x, "input_layernorm")
            q = g.linear(y, "self_attn.q_proj", q_width, Role.QKV, attn)  # n (h e)
            k = g.linear(y, "self_attn.k_proj", kv_width, Role.QKV, attn)  # n (g e)
            v = g.heads(g.linear(y, "self_attn.v_proj", kv_width, Role.QKV, attn))  # n g e
            q = g.rope(g.heads(g.rms_norm(q, "self_attn.q_norm")), config.rope(i))  # n h e
            k = g.rope(g.heads(g.rms_norm(k, "self_attn.k_norm")), config.rope(i))  # n g e
            y = g.flat(g.attention(q, k, v))  # n (h e)
            x = g.add(x, g.linear(y, "self_attn.o_proj", d, Role.ATTENTION_OUTPUT, attn))
            y = g.rms_norm(x, "post_attention_layernorm")
            scores = router(g, y, "mlp.gate", routing)  # n x
            x = g.add(x, swiglu_experts(g, y, scores, "mlp.experts", f, routing))
    x = g.rms_norm(g.wanted_rows(x), "model.norm")  # r d
    return g.finish(g.head(x, tied_to="model.embed_tokens"))  # r v


FAMILY = Family(
    "olmoe",
    spec=ConfigSpec(
        understood=frozenset({"attention_bias"}),
        neutral=ROUTER_TRAINING,
        keys={"num_experts": SIZE, "num_experts_per_tok": SIZE, "norm_topk_prob": FLAG},
        spellings={"num_local_experts": "num_experts"},
        defaults={
            "vocab_size": 50_304,
            "hidden_size": 2_048,
            "intermediate_size": 2_048,
            "num_hidden_layers": 16,
            "num_attention_heads": 16,
            "max_position_embeddings": 4_096,
            "hidden_act": "silu",
            "norm_eps": 1e-5,
            "tie_word_embeddings": False,
            "num_experts": 64,
            "num_experts_per_tok": 8,
            "norm_topk_prob": False,
        },
        accepts={"hidden_act": ("silu",)},
        full_width=True,
    ),
    build=build,
    gguf=GgufNames(
        "olmoe",
        tensors={
            **LLAMA_TENSORS,
            **HEAD_NORM_TENSORS,
            **expert_tensors("mlp.gate", "mlp.experts"),
        },
        keys={**EXPERT_KEYS, "expert_feed_forward_length": "intermediate_size"},
        fixed={"norm_topk_prob": False},
    ),
    stacks=(EXPERT_ROWS,),
)
