"""BLOOM and BLOOMZ, 560M to 176B.

Differs from `llama.py`: no rotary positions, each head's scores fall with the distance by a slope
of its own (ALiBi); norms center and have a bias (LayerNorm), and the embedding is normalised, too;
one fused table for query, key and value, its rows stored head by head; heads are not grouped; every
projection has a bias; one expanding table, four times as wide, and GELU instead of SwiGLU.

`apply_residual_connection_post_layernorm` is refused, as no published model sets it, and so is
`slow_but_exact`, with which transformers leaves out biases.

Source: arXiv:2211.05100 section 3.2; slopes arXiv:2108.12409 section 3. Weight names as in the
checkpoints.
"""

from __future__ import annotations

from forwardpass.architectures.family import SPLIT_QKV, Family, GgufNames, Stored, Transform
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import Graph, Role

_MAX_HEADS = 2**16  # a slope is kept for each


def slopes(heads: int) -> tuple[float, ...]:
    """What each head's score loses a position of distance.

    For a power of two they are 2^(-8/heads), its square, and so on; for other numbers, those of
    the next lower power and then every other one of the next higher, as in the paper's code
    (ofirpress/attention_with_linear_biases, fairseq/models/transformer.py, `get_slopes`).
    """
    power = 1 << (heads.bit_length() - 1)
    found = [2 ** (-8 * i / power) for i in range(1, power + 1)]
    found += [2 ** (-4 * i / power) for i in range(1, 2 * (heads - power), 2)]
    return tuple(found)


def build(config: ModelConfig) -> Graph:
    """The graph of a BLOOM with these sizes."""
    g = GraphBuilder(config)
    d, f = config.hidden_size, config.intermediate_size
    by_head = slopes(config.num_attention_heads)
    x = g.layer_norm(g.embed("word_embeddings"), "word_embeddings_layernorm")  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"h.{i}", i):
            y = g.layer_norm(x, "input_layernorm")
            qkv = g.linear(y, "self_attention.query_key_value", 3 * d, Role.QKV, bias=True)
            q, k, v = g.split_heads(qkv)  # n h e
            y = g.flat(g.attention(q, k, v, slopes=by_head))  # n d
            y = g.linear(y, "self_attention.dense", d, Role.ATTENTION_OUTPUT, bias=True)
            x = g.add(x, y)
            y = g.layer_norm(x, "post_attention_layernorm")
            y = g.gelu(g.linear(y, "mlp.dense_h_to_4h", f, Role.MLP_UP, bias=True))  # n f
            x = g.add(x, g.linear(y, "mlp.dense_4h_to_h", d, Role.MLP_DOWN, bias=True))
    x = g.layer_norm(g.wanted_rows(x), "ln_f")  # r d
    return g.finish(g.head(x, tied_to="word_embeddings"))  # r v


def _derive(values: dict[str, object]) -> list[str]:
    """Fills in the MLP's width, and names sizes that no slopes or tables are made for."""
    width, heads = values["hidden_size"], values["num_attention_heads"]
    assert isinstance(width, int)
    assert isinstance(heads, int)
    stated = values.setdefault("intermediate_size", 4 * width)
    problems = [] if stated == 4 * width else [f"intermediate_size {stated} is not 4 × {width}"]
    if heads > _MAX_HEADS:
        problems.append(f"num_attention_heads {heads:,}  (this version runs up to {_MAX_HEADS:,})")
    return problems


_TENSORS: dict[str, Stored] = {
    "word_embeddings.weight": ("token_embd.weight", Transform.AS_STORED),
    "lm_head.weight": ("output.weight", Transform.AS_STORED),
    **{
        f"{ours}.{kind}": (f"{theirs}.{kind}", Transform.AS_STORED)
        for ours, theirs in {
            "word_embeddings_layernorm": "token_embd_norm",
            "ln_f": "output_norm",
            "h.{i}.input_layernorm": "blk.{i}.attn_norm",
            "h.{i}.post_attention_layernorm": "blk.{i}.ffn_norm",
            # The converter stores all queries, then all keys, then all values.
            "h.{i}.self_attention.query_key_value": "blk.{i}.attn_qkv",
            "h.{i}.self_attention.dense": "blk.{i}.attn_output",
            "h.{i}.mlp.dense_h_to_4h": "blk.{i}.ffn_up",
            "h.{i}.mlp.dense_4h_to_h": "blk.{i}.ffn_down",
        }.items()
        for kind in ("weight", "bias")
    },
}

FAMILY = Family(
    "bloom",
    spec=ConfigSpec(
        spellings={
            "n_embed": "hidden_size",
            "n_layer": "num_hidden_layers",
            "n_head": "num_attention_heads",
            "n_inner": "intermediate_size",
            "seq_length": "max_position_embeddings",
            "layer_norm_epsilon": "norm_eps",
        },
        neutral=frozenset(
            {
                "attention_softmax_in_fp32",
                "bias_dropout_fusion",
                "hidden_dropout",
                "masked_softmax_fusion",
                "offset_alibi",
                "skip_bias_add",
                "unk_token_id",
            }
        ),
        defaults={
            "vocab_size": 250_880,
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 8,
            "max_position_embeddings": 2_048,
            "hidden_act": "gelu_new",
            "norm_eps": 1e-5,
            "tie_word_embeddings": True,
        },
        accepts={"hidden_act": ("gelu_new",)},
        derive=_derive,
        rope=False,
        grouped=False,
    ),
    build=build,
    embedding="word_embeddings.weight",
    prefixes=("transformer.",),
    transforms=SPLIT_QKV,
    buffers=(),
    gguf=GgufNames("bloom", tensors=_TENSORS, keys={"attention.layer_norm_epsilon": "norm_eps"}),
)
