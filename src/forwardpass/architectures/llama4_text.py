"""Llama 4 Scout and Maverick, text; also the text part of the models that see images.

Differs from `llama.py`: where `no_rope_layers` has a 0, one layer of four, queries and keys are not
turned and queries grow with their position (`attn_temperature_tuning`); the others turn neighbors,
divide each head by its root mean square where `use_qk_norm` is set, and see the tokens of their own
chunk of `attention_chunk_size`. Every `interleave_moe_layer_step`-th layer, or those in
`moe_layers`, has a mixture of experts with a shared one instead of the MLP, which is as wide as
`intermediate_size_mlp`; the chosen experts' inputs are weighed, not their results.

A chunk is counted as a window of its size: the most that a token of it sees. The token that begins
a chunk sees itself alone.

Source: transformers 5.24, models/llama4. Weight names as in the checkpoints, where the experts'
tables are stored inputs × outputs and end in no `.weight`.
"""

from __future__ import annotations

from forwardpass.architectures.family import Family
from forwardpass.architectures.mixtral import ROUTER_TRAINING
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.config_kinds import FLAG, NUMBER, SIZE, listed, size
from forwardpass.config_rope import RopeSpec
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.experts import Routing, expert_linear, route, router, swiglu, to_experts
from forwardpass.graph.graph import KV, Graph, Role, Value
from forwardpass.rope import FULL, shown

CHUNKED = "chunked_attention"


def build(config: ModelConfig) -> Graph:
    """The graph of a Llama 4 with these sizes."""
    g = GraphBuilder(config)
    mixed = set(config.entries("moe_layers"))
    x = g.embed("model.embed_tokens")  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"model.layers.{i}", i):
            x = g.add(x, _attention(g, g.rms_norm(x, "input_layernorm"), i))
            y = g.rms_norm(x, "post_attention_layernorm")
            if i in mixed:
                y = _mixture(g, y)
            else:
                y = swiglu(g, y, "feed_forward", config.whole("intermediate_size_mlp"))
            x = g.add(x, y)
    x = g.rms_norm(g.wanted_rows(x), "model.norm")  # r d
    return g.finish(g.head(x, tied_to="model.embed_tokens"), proven=False)  # r v


def _attention(g: GraphBuilder, y: Value, i: int) -> Value:
    config, attn = g.config, g.config.attention_bias
    q_width = config.num_attention_heads * config.head_dim
    kv_width = config.num_key_value_heads * config.head_dim
    q = g.heads(g.linear(y, "self_attn.q_proj", q_width, Role.QKV, attn))  # n h e
    k = g.heads(g.linear(y, "self_attn.k_proj", kv_width, Role.QKV, attn))  # n g e
    v = g.heads(g.linear(y, "self_attn.v_proj", kv_width, Role.QKV, attn))  # n g e
    if config.no_rope_layers[i]:
        q, k = (g.rope(x, config.rope(i), interleaved=True) for x in (q, k))
        if config.use_qk_norm:
            q, k = (g.apply("plain_rms_norm", [x], eps=config.norm_eps) for x in (q, k))
    elif config.flag("attn_temperature_tuning"):
        floor, factor = config.whole("floor_scale"), config.number("attn_scale")
        q = g.apply("position_scale", [q, g.positions], floor=floor, factor=factor)
    chunked = config.layer_types[i] == CHUNKED
    y = g.flat(_in_chunks(g, q, k, v) if chunked else g.attention(q, k, v))  # n (h e)
    return g.linear(y, "self_attn.o_proj", config.hidden_size, Role.ATTENTION_OUTPUT, attn)


def _in_chunks(g: GraphBuilder, q: Value, k: Value, v: Value) -> Value:
    """Each query's mix of the values of its own chunk, n h e."""
    config, chunk = g.config, g.config.whole("attention_chunk_size")
    row = (config.num_key_value_heads, config.head_dim)
    keys = g.cache(k, g.state("self_attn.key", KV, *row, window=chunk))
    values = g.cache(v, g.state("self_attn.value", KV, *row, window=chunk))
    inputs = [q, keys, values, g.positions]
    scale = config.head_dim**-0.5
    return g.apply("chunked_attention", inputs, role=Role.READ, scale=scale, window=chunk)


def _mixture(g: GraphBuilder, x: Value) -> Value:
    """The chosen experts, of inputs times the sigmoid of their scores, and the shared one, n d."""
    config, f = g.config, g.config.intermediate_size
    routing = Routing(
        config.whole("num_local_experts"), config.whole("num_experts_per_tok"), scoring="sigmoid"
    )
    name = "feed_forward.experts"
    chosen, weights = route(g, router(g, x, "feed_forward.router", routing), routing)
    y = g.apply("weigh_experts", [to_experts(g, x, chosen), weights])  # n k d
    both = expert_linear(g, y, chosen, f"{name}.gate_up_proj", 2 * f, routing, Role.MLP_UP)
    y = g.silu_multiply(g.columns(both, 0, f), g.columns(both, f, 2 * f))  # n k f
    d = config.hidden_size
    y = expert_linear(g, y, chosen, f"{name}.down_proj", d, routing, Role.MLP_DOWN)
    return g.add(g.apply("add_experts", [y]), swiglu(g, x, "feed_forward.shared_expert", f))


def _which_layers(values: dict[str, object]) -> list[str]:
    """Says which layers turn (1), which see chunks and which have experts."""
    layers, every = values["num_hidden_layers"], values.pop("no_rope_layer_interval")
    step, mixed = values["interleave_moe_layer_step"], values.get("moe_layers")
    assert isinstance(layers, int)
    assert isinstance(every, int)
    assert isinstance(step, int)
    turned = values.get("no_rope_layers") or [int((i + 1) % every != 0) for i in range(layers)]
    problems = []
    if (
        not isinstance(turned, list)
        or len(turned) < layers
        or any(isinstance(entry, bool) or entry not in (0, 1) for entry in turned)
    ):
        wanted = f"(wanted a 0 or 1 for each of {layers} layers)"
        return [f"no_rope_layers = {shown(turned)}  {wanted}"]
    values["no_rope_layers"] = tuple(turned[:layers])
    if mixed is None:
        values["moe_layers"] = mixed = list(range(step - 1, layers, step))
    assert isinstance(mixed, list)
    if any(entry >= layers for entry in mixed):
        problems.append(f"moe_layers = {shown(mixed)}  (there are {layers} layers)")
    chunks = values.get("attention_chunk_size") is not None
    kinds = [CHUNKED if turns and chunks else FULL for turns in turned[:layers]]
    stated = values.setdefault("layer_types", kinds)
    if isinstance(stated, list) and CHUNKED in stated and not chunks:
        problems.append("layer_types has chunked layers, but attention_chunk_size is null")
    return problems


FAMILY = Family(
    "llama4_text",
    spec=ConfigSpec(
        understood=frozenset(
            {"attention_bias", "no_rope_layers", "no_rope_layer_interval", "use_qk_norm"}
        ),
        neutral=ROUTER_TRAINING,
        keys={
            "intermediate_size_mlp": SIZE,
            "num_local_experts": SIZE,
            "num_experts_per_tok": SIZE,
            "moe_layers": listed(size(0)),
            "interleave_moe_layer_step": SIZE,
            "attention_chunk_size": SIZE,
            "attn_temperature_tuning": FLAG,
            "floor_scale": SIZE,
            "attn_scale": NUMBER,
        },
        defaults={
            "vocab_size": 202_048,
            "hidden_size": 5_120,
            "intermediate_size": 8_192,
            "intermediate_size_mlp": 16_384,
            "num_hidden_layers": 48,
            "num_attention_heads": 40,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 131_072,
            "hidden_act": "silu",
            "norm_eps": 1e-5,
            "rope_theta": 500_000.0,
            "tie_word_embeddings": False,
            "use_qk_norm": True,
            "num_local_experts": 16,
            "num_experts_per_tok": 1,
            "interleave_moe_layer_step": 1,
            "no_rope_layer_interval": 4,
            "attention_chunk_size": 8_192,
            "attn_temperature_tuning": True,
            "floor_scale": 8_192,
            "attn_scale": 0.1,
        },
        accepts={"hidden_act": ("silu",)},
        derive=_which_layers,
        ropes=RopeSpec(like_full=(CHUNKED,)),
        layer_kinds=(CHUNKED,),
    ),
    build=build,
    parts={r"(model\.layers\.\d+\.feed_forward\.experts\.(?:gate_up|down)_proj)": (r"\1.weight",)},
)
