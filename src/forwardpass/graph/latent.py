"""Latent attention, as families write it, and the indexer that may choose what it reads.

The graph is the expanded form: keys and values of every head are made from a token's latent row
once, when it is new. Engines also compute an absorbed form, whose queries are brought to the latent
rows instead; work/latent.py counts what that changes.
"""

from __future__ import annotations

from dataclasses import dataclass

from forwardpass.config import ModelConfig
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import KV, Role, Value

INNER_EPS = 1e-6  # of the norms of the ranks and of the indexer's keys, whatever the config's is


@dataclass(frozen=True)
class Latent:
    """The sizes of latent attention in one config.

    Of each query and key `still` elements stay and `turned` ones turn; values have `value`. Rows of
    `rank` + `turned` elements are cached; queries come from `query_rank` elements, or from the
    hidden ones. `interleaved`: neighbors turn together, not halves.
    """

    heads: int
    still: int
    turned: int
    value: int
    rank: int
    query_rank: int | None
    interleaved: bool

    @classmethod
    def of(cls, config: ModelConfig, interleaved: bool = True) -> Latent:
        """Those of the config."""
        return cls(
            config.num_attention_heads,
            config.whole("qk_nope_head_dim"),
            config.whole("qk_rope_head_dim"),
            config.whole("v_head_dim"),
            config.whole("kv_lora_rank"),
            config.whole("q_lora_rank") if config.has("q_lora_rank") else None,
            interleaved,
        )

    @property
    def key(self) -> int:
        """Elements of a query's or key's head."""
        return self.still + self.turned


@dataclass(frozen=True)
class Indexer:
    """`heads` of `width` elements that score every visible token; `most` are chosen.

    `interleaved`: neighbors turn together, not halves.
    """

    heads: int
    width: int
    most: int
    interleaved: bool


def head_columns(g: GraphBuilder, x: Value, start: int, stop: int) -> Value:
    """Elements start to stop of each head, n h o."""
    return g.apply("head_columns", [x], given={"o": stop - start}, start=start, stop=stop)


def join_heads(g: GraphBuilder, first: Value, second: Value) -> Value:
    """Both parts of each head (n h a; n h b, or n 1 b for all heads) as one, n h (a + b)."""
    a, b = first.shape[-1], second.shape[-1]
    assert isinstance(a, int)
    assert isinstance(b, int)
    return g.apply("join_heads", [first, second], given={"c": a + b})


def latent_queries(g: GraphBuilder, x: Value, i: int, sizes: Latent) -> tuple[Value, Value]:
    """Queries, n h e, of which the last elements are turned, and what they are made from."""
    width, source = sizes.heads * sizes.key, x
    if sizes.query_rank is None:
        q = g.linear(x, "self_attn.q_proj", width, Role.QKV)
    else:
        bias = g.config.attention_bias
        source = g.linear(x, "self_attn.q_a_proj", sizes.query_rank, Role.QKV, bias)
        source = g.rms_norm(source, "self_attn.q_a_layernorm", INNER_EPS)
        q = g.linear(source, "self_attn.q_b_proj", width, Role.QKV)
    q = g.heads(q, sizes.key)
    still = head_columns(g, q, 0, sizes.still)
    turned = head_columns(g, q, sizes.still, sizes.key)
    turned = g.rope(turned, g.config.rope(i), dims=sizes.turned, interleaved=sizes.interleaved)
    return join_heads(g, still, turned), source


def latent_keys(g: GraphBuilder, x: Value, i: int, sizes: Latent) -> tuple[Value, Value]:
    """Keys (n h e) and values (n h w), expanded from the new tokens' latent rows."""
    row_width = sizes.rank + sizes.turned
    bias = g.config.attention_bias
    row = g.linear(x, "self_attn.kv_a_proj_with_mqa", row_width, Role.QKV, bias)
    narrow = g.rms_norm(g.columns(row, 0, sizes.rank), "self_attn.kv_a_layernorm", INNER_EPS)
    turned = g.heads(g.columns(row, sizes.rank, row_width), sizes.turned)  # n 1 b
    turned = g.rope(turned, g.config.rope(i), dims=sizes.turned, interleaved=sizes.interleaved)
    each = sizes.still + sizes.value
    wide = g.heads(g.linear(narrow, "self_attn.kv_b_proj", sizes.heads * each, Role.QKV), each)
    still = head_columns(g, wide, 0, sizes.still)
    return join_heads(g, still, turned), head_columns(g, wide, sizes.still, each)


def latent_attention(g: GraphBuilder, x: Value, i: int, sizes: Latent) -> Value:
    """Attention of layer i to all visible tokens, from normed rows to what is added, n d."""
    q, _ = latent_queries(g, x, i, sizes)
    return latent_mix(g, q, latent_keys(g, x, i, sizes), i, sizes)


def latent_mix(
    g: GraphBuilder,
    q: Value,
    keys: tuple[Value, Value],
    i: int,
    sizes: Latent,
    selection: tuple[Value, int] | None = None,
) -> Value:
    """The mix of values and its output projection, n d; of the `selection` of tokens alone.

    Scores are scaled by what YaRN lengthens whole queries and keys by; transformers 5.24,
    models/deepseek_v3 (`yarn_apply_mscale`).
    """
    y = g.attention(
        q,
        *keys,
        scale=sizes.key**-0.5 * g.config.rope(i).whole_factor ** 2,
        latent=(sizes.rank, sizes.turned),
        selection=selection,
    )
    width, bias = g.config.hidden_size, g.config.attention_bias
    return g.linear(g.flat(y), "self_attn.o_proj", width, Role.ATTENTION_OUTPUT, bias)


def select_tokens(
    g: GraphBuilder, x: Value, source: Value, i: int, sizes: Latent, indexer: Indexer
) -> Value:
    """The tokens that layer i's attention reads, n k: the indexer's choice.

    `source`: the normed rank that queries are made from. The indexer caches a key of its own.
    """
    name = "self_attn.indexer"

    def turned(heads: Value) -> Value:
        rope, pairs = g.config.rope(i), indexer.interleaved
        return g.rope(g.heads(heads, indexer.width), rope, dims=sizes.turned, interleaved=pairs)

    q = g.linear(source, f"{name}.wq_b", indexer.heads * indexer.width, Role.QKV)
    k = g.layer_norm(
        g.linear(x, f"{name}.wk", indexer.width, Role.QKV), f"{name}.k_norm", INNER_EPS
    )
    keys = g.cache(turned(k), g.state(f"{name}.key", KV, 1, indexer.width))
    weights = g.linear(x, f"{name}.weights_proj", indexer.heads, Role.QKV)
    return g.apply(
        "select_tokens",
        [turned(q), keys, weights, g.positions],
        role=Role.READ,
        given={"k": indexer.most},
        k=indexer.most,
    )
