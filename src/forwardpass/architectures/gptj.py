"""GPT-J 6B.

Differs from `llama.py`: one norm a layer, which centers and has a bias (LayerNorm), feeds attention
and MLP, and both are added at once; only the first `rotary_dim` elements of a head turn, neighbors
paired; heads are not grouped; one expanding table and GELU instead of SwiGLU, with biases, which
the attention does not have; the head has a bias.

llama.cpp has no GPT-J, so there are no GGUF names.

Source: https://github.com/kingoflolz/mesh-transformer-jax (README, "GPT-J-6B", model details).
Weight names as in the checkpoint.
"""

from __future__ import annotations

from forwardpass.architectures.family import Family
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import Graph, Role
from forwardpass.graph.ops import ACTIVATIONS
from forwardpass.rope import Rope

_ROPE = Rope(10_000.0)  # no config names another base


def build(config: ModelConfig) -> Graph:
    """The graph of a GPT-J with these sizes."""
    g = GraphBuilder(config)
    d, f, dims = config.hidden_size, config.intermediate_size, config.rotary_dim
    x = g.embed("wte")  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"h.{i}", i):
            normed = g.layer_norm(x, "ln_1")
            q = g.heads(g.linear(normed, "attn.q_proj", d, Role.QKV))  # n h e
            k = g.heads(g.linear(normed, "attn.k_proj", d, Role.QKV))  # n h e
            v = g.heads(g.linear(normed, "attn.v_proj", d, Role.QKV))  # n h e
            q = g.rope(q, _ROPE, dims=dims, interleaved=True)
            k = g.rope(k, _ROPE, dims=dims, interleaved=True)
            y = g.flat(g.attention(q, k, v))  # n d
            x = g.add(x, g.linear(y, "attn.out_proj", d, Role.ATTENTION_OUTPUT))
            y = g.activation(g.linear(normed, "mlp.fc_in", f, Role.MLP_UP, bias=True))  # n f
            x = g.add(x, g.linear(y, "mlp.fc_out", d, Role.MLP_DOWN, bias=True))
    x = g.layer_norm(g.wanted_rows(x), "ln_f")  # r d
    return g.finish(g.head(x, tied_to="wte", bias=True))  # r v


def _derive(values: dict[str, object]) -> list[str]:
    """Fills in the MLP's width, and names a `rotary_dim` that does not fit the head."""
    width, heads, dims = (
        values[key] for key in ("hidden_size", "num_attention_heads", "rotary_dim")
    )
    assert isinstance(width, int)
    assert isinstance(heads, int)
    assert isinstance(dims, int)
    values.setdefault("intermediate_size", 4 * width)
    if dims % 2 or dims > width // heads:
        return [f"rotary_dim {dims} is no even number up to the head's {width // heads}"]
    return []


FAMILY = Family(
    "gptj",
    spec=ConfigSpec(
        understood=frozenset({"rotary_dim"}),
        spellings={
            "n_embd": "hidden_size",
            "n_layer": "num_hidden_layers",
            "n_head": "num_attention_heads",
            "n_positions": "max_position_embeddings",
            "n_inner": "intermediate_size",
            "activation_function": "hidden_act",
            "layer_norm_epsilon": "norm_eps",
        },
        neutral=frozenset(
            {
                "n_ctx",
                "summary_activation",
                "summary_first_dropout",
                "summary_proj_to_labels",
                "summary_type",
                "summary_use_proj",
            }
        ),
        defaults={
            "vocab_size": 50_400,
            "hidden_size": 4_096,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "rotary_dim": 64,
            "max_position_embeddings": 2_048,
            "hidden_act": "gelu_new",
            "norm_eps": 1e-5,
            "tie_word_embeddings": False,
            "rope_scaling": {"rope_type": "gptj"},
            "rope_theta": 10_000,
            "rotary": True,
            "scale_attn_weights": True,
        },
        accepts={"hidden_act": tuple(ACTIVATIONS)},
        derive=_derive,
        rope=False,
        grouped=False,
    ),
    build=build,
    embedding="wte.weight",
    prefixes=("transformer.",),
    buffers=(r"h\.\d+\.attn\.(bias|masked_bias|embed_positions)",),
)
