"""Gemma 4, text; also the text part of the models that see images.

Differs from `gemma3_text.py`: norms multiply by their gain alone; values are normalised too,
without one, and scores are not scaled. Full layers have heads of `global_head_dim`, of which the
fastest pairs turn, and with `attention_k_eq_v` values that are what keys were made of, of
`num_global_key_value_heads`. The last `num_kv_shared_layers` read the cache of the last layer of
their kind before them, with an MLP twice as wide where `use_double_wide_mlp` says so. With
`enable_moe_block` a mixture of experts, each behind a learned gain, adds to the MLP; with
`hidden_size_per_layer_input` each layer adds an embedding of its own of the token, gated. A layer's
result is multiplied by a stored constant.

Source: transformers 5.24, models/gemma4. Weight names as in the checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from forwardpass.architectures.family import Family
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.config_kinds import FLAG, OBJECT, SIZE, WORD, size
from forwardpass.config_rope import RopeSpec
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.experts import Routing, combine, route, to_experts
from forwardpass.graph.graph import KV, Graph, Role, State, Value
from forwardpass.rope import FULL, SLIDING, shown

_MOST_DIGITS = 9  # of a layer's number


@dataclass(frozen=True)
class Cached:
    """A layer's keys and values, g s e each, and their states."""

    keys: Value
    values: Value
    key: State
    value: State


def build(config: ModelConfig) -> Graph:
    """The graph of a Gemma 4 with these sizes."""
    g = GraphBuilder(config)
    d, first_shared = config.hidden_size, _first_shared(config)
    caches: dict[int, Cached] = {}
    x = g.scale(g.embed("model.embed_tokens"), d**0.5)  # n d
    inputs = _layer_inputs(g, x) if config.has("hidden_size_per_layer_input") else None
    for i in range(config.num_hidden_layers):
        with g.layer(f"model.layers.{i}", i):
            y = _attention(g, g.rms_norm(x, "input_layernorm"), i, caches)
            x = g.add(x, g.rms_norm(y, "post_attention_layernorm"))
            wide = config.flag("use_double_wide_mlp") and i >= first_shared
            y = g.rms_norm(x, "pre_feedforward_layernorm")
            y = _mlp(g, y, config.intermediate_size * (2 if wide else 1))
            if config.flag("enable_moe_block"):
                y = g.add(g.rms_norm(y, "post_feedforward_layernorm_1"), _mixture(g, x))
            x = g.add(x, g.rms_norm(y, "post_feedforward_layernorm"))
            if inputs is not None:
                x = _with_input(g, x, inputs, i)
            x = g.apply("layer_scale", [x], [g.weight("layer_scalar", 1)])
    x = g.rms_norm(g.wanted_rows(x), "model.norm")  # r d
    logits = g.head(x, tied_to="model.embed_tokens")  # r v
    cap = config.final_logit_softcapping
    return g.finish(logits if cap is None else g.softcap(logits, cap), proven=False)


def _attention(g: GraphBuilder, y: Value, i: int, caches: dict[int, Cached]) -> Value:
    config, attn = g.config, g.config.attention_bias
    full = config.layer_types[i] == FULL
    e = config.whole("global_head_dim") if full else config.head_dim
    q = g.linear(y, "self_attn.q_proj", config.num_attention_heads * e, Role.QKV, attn)
    q = _turned(g, g.rms_norm(g.heads(q, e), "self_attn.q_norm"), i)  # n h e
    if i < _first_shared(config):
        cached = caches[i] = _keys_and_values(g, y, i, e)
        keys, values = cached.keys, cached.values
    else:
        source = caches[_producer(config, i)]
        keys = _again(g, source.keys, "self_attn.key", source.key)
        values = _again(g, source.values, "self_attn.value", source.value)
    y = g.apply(
        "attention",
        [q, keys, values, g.positions],
        role=Role.READ,
        scale=1.0,
        window=config.window(i),
        softcap=None,
        slopes=None,
        absorbed=None,
    )  # n h e
    return g.linear(g.flat(y), "self_attn.o_proj", config.hidden_size, Role.ATTENTION_OUTPUT, attn)


def _keys_and_values(g: GraphBuilder, y: Value, i: int, e: int) -> Cached:
    """A layer's own keys and values, cached."""
    config, attn = g.config, g.config.attention_bias
    groups, same = config.num_key_value_heads, False
    if config.layer_types[i] == FULL and config.flag("attention_k_eq_v"):
        same = True
        if config.has("num_global_key_value_heads"):
            groups = config.whole("num_global_key_value_heads")
    k = g.heads(g.linear(y, "self_attn.k_proj", groups * e, Role.QKV, attn), e)  # n g e
    v = k if same else g.heads(g.linear(y, "self_attn.v_proj", groups * e, Role.QKV, attn), e)
    k = _turned(g, g.rms_norm(k, "self_attn.k_norm"), i)
    v = g.apply("plain_rms_norm", [v], eps=config.norm_eps)
    window = config.window(i)
    key = g.state("self_attn.key", KV, groups, e, window=window)
    value = g.state("self_attn.value", KV, groups, e, window=window)
    return Cached(g.cache(k, key), g.cache(v, value), key, value)


def _again(g: GraphBuilder, cached: Value, name: str, of: State) -> Value:
    """The cache of an earlier layer, read by this one."""
    state = g.state(name, KV, *of.shape, window=of.window)
    state = State(state.name, KV, of.shape, state.layer, of.window, of.name, again=True)
    return g.apply("shared_cache", [cached], role=Role.READ, state=state)


def _turned(g: GraphBuilder, x: Value, i: int) -> Value:
    """x turned by position: whole heads, or their fastest pairs."""
    rope, width = g.config.rope(i), x.shape[-1]
    assert isinstance(width, int)
    if rope.kind != "proportional":
        return g.rope(x, rope, dims=width)
    dims = 2 * int(width * rope.partial_rotary_factor // 2)
    return g.apply(
        "rope_proportional", [x, g.positions], given={"dims": dims}, rope=rope, dims=dims
    )


def _mlp(g: GraphBuilder, y: Value, width: int) -> Value:
    gate = g.linear(y, "mlp.gate_proj", width, Role.MLP_UP)  # n f
    up = g.linear(y, "mlp.up_proj", width, Role.MLP_UP)  # n f
    d = g.config.hidden_size
    return g.linear(g.gelu_multiply(gate, up), "mlp.down_proj", d, Role.MLP_DOWN)


def _mixture(g: GraphBuilder, x: Value) -> Value:
    """What the chosen experts, each a GeGLU, add up to; the router has a norm of its own, n d."""
    config, d = g.config, g.config.hidden_size
    routing = Routing(config.whole("num_experts"), config.whole("top_k_experts"), normal="sum")
    width = config.whole("moe_intermediate_size")
    gain = g.weight("router.scale", d)
    y = g.scale(g.apply("rms_norm", [x], [gain], eps=config.norm_eps), d**-0.5)
    scores = g.linear(y, "router.proj", routing.experts, Role.MLP_ROUTER)  # n x
    chosen, weights = route(g, scores, routing)
    gains = g.weight("router.per_expert_scale", routing.experts)
    weights = g.apply("expert_gain", [weights, chosen], [gains], role=Role.MLP_ROUTER)
    y = to_experts(g, g.rms_norm(x, "pre_feedforward_layernorm_2"), chosen)
    table = g.weight("experts.gate_up_proj", routing.experts, 2 * width, d)
    both = g.apply("expert_linear", [y, chosen], [table], role=Role.MLP_UP)  # n k f
    y = g.gelu_multiply(g.columns(both, 0, width), g.columns(both, width, 2 * width))
    table = g.weight("experts.down_proj", routing.experts, d, width)
    rows = g.apply("expert_linear", [y, chosen], [table], role=Role.MLP_DOWN)  # n k d
    return g.rms_norm(combine(g, rows, weights), "post_feedforward_layernorm_2")


def _layer_inputs(g: GraphBuilder, x: Value) -> Value:
    """Each layer's own embedding of the token, mixed with one made of the common one, n (l p)."""
    config, p = g.config, g.config.whole("hidden_size_per_layer_input")
    width = config.num_hidden_layers * p
    rows = config.whole("vocab_size_per_layer_input")
    table = g.weight("model.embed_tokens_per_layer.weight", rows, width)
    own = g.scale(g.apply("embed", [g.tokens], [table], role=Role.EMBEDDING), p**0.5)
    y = g.linear(x, "model.per_layer_model_projection", width, Role.EMBEDDING)
    y = g.heads(g.scale(y, config.hidden_size**-0.5), p)  # n l p
    y = g.flat(g.rms_norm(y, "model.per_layer_projection_norm"))
    return g.scale(g.add(y, own), 2**-0.5)


def _with_input(g: GraphBuilder, x: Value, inputs: Value, i: int) -> Value:
    """x plus the layer's own input, gated, projected and normalised, n d."""
    p = g.config.whole("hidden_size_per_layer_input")
    gate = g.linear(x, "per_layer_input_gate", p, Role.MLP_UP)  # n p
    y = g.gelu_multiply(gate, g.columns(inputs, i * p, (i + 1) * p))
    y = g.linear(y, "per_layer_projection", g.config.hidden_size, Role.MLP_DOWN)
    return g.add(x, g.rms_norm(y, "post_per_layer_input_norm"))


def _first_shared(config: ModelConfig) -> int:
    """The first layer that reads another's cache."""
    return config.num_hidden_layers - config.whole("num_kv_shared_layers")


def _producer(config: ModelConfig, i: int) -> int:
    """The layer whose cache layer i reads: the last of its kind that keeps one."""
    kinds = config.layer_types
    return max(j for j in range(_first_shared(config)) if kinds[j] == kinds[i])


def _complete(values: dict[str, object]) -> list[str]:
    """Says which layers slide, where the config does not; what of it cannot be honoured."""
    layers, shared = values["num_hidden_layers"], values["num_kv_shared_layers"]
    assert isinstance(layers, int)
    assert isinstance(shared, int)
    problems = [
        f"{key} = {shown(values[key])}  (in this family rope_parameters say it by layer type)"
        for key in ("rope_theta", "rope_scaling", "partial_rotary_factor")
        if key in values
    ]
    every_sixth = [FULL if i % 6 == 5 or i == layers - 1 else SLIDING for i in range(layers)]
    kinds = values.setdefault("layer_types", every_sixth)
    problems += _read_layers(values, kinds)
    if isinstance(kinds, list) and len(kinds) == layers:
        if kinds[-1] != FULL:
            problems.append(f"the last of layer_types is {shown(kinds[-1])}  (wanted {FULL})")
        if shared >= layers or not set(map(shown, kinds)) <= set(
            map(shown, kinds[: -shared or None])
        ):
            problems.append(
                f"num_kv_shared_layers = {shared}  (a kind of layer has none before that keeps "
                "a cache)"
            )
    needed = ["global_head_dim"]
    if values["enable_moe_block"]:
        needed += ["num_experts", "top_k_experts", "moe_intermediate_size"]
    problems += [f"{key} is not set" for key in needed if key not in values]
    heads, groups = values["num_attention_heads"], values.get("num_global_key_value_heads", 1)
    assert isinstance(heads, int)
    assert isinstance(groups, int)
    if heads % groups:
        problems.append(f"num_global_key_value_heads = {groups} does not divide {heads} heads")
    if values.get("hidden_size_per_layer_input") == 0:
        del values["hidden_size_per_layer_input"]
    return problems


def _read_layers(values: dict[str, object], kinds: object) -> list[str]:
    """Takes what full layers have of their own from `per_layer_config`; what it cannot take.

    transformers 5 writes it for `global_head_dim` and `num_global_key_value_heads`.
    """
    stated = values.pop("per_layer_config", None)
    if stated is None or not isinstance(kinds, list):
        return []
    assert isinstance(stated, Mapping)
    full = {i for i, kind in enumerate(kinds) if kind == FULL}
    layers = {int(key) for key in stated if key.isdecimal() and len(key) <= _MOST_DIGITS}
    own, *others = [*stated.values()] or [None]
    if layers == full and len(stated) == len(full) and all(other == own for other in others):
        known = {"head_dim"} | ({"num_key_value_heads"} if values["attention_k_eq_v"] else set())
        if isinstance(own, Mapping) and own.keys() <= known and all(map(SIZE.fits, own.values())):
            values["global_head_dim"] = own.get("head_dim", values["head_dim"])
            values.pop("num_global_key_value_heads", None)
            if "num_key_value_heads" in own:
                values["num_global_key_value_heads"] = own["num_key_value_heads"]
            return []
    wanted = "wanted one head_dim, with attention_k_eq_v also num_key_value_heads, of full layers"
    return [f"per_layer_config = {shown(stated)}  ({wanted})"]


FAMILY = Family(
    "gemma4_text",
    spec=ConfigSpec(
        understood=frozenset({"attention_bias", "final_logit_softcapping", "sliding_window"}),
        keys={
            "global_head_dim": SIZE,
            "num_global_key_value_heads": SIZE,
            "attention_k_eq_v": FLAG,
            "num_kv_shared_layers": size(0),
            "use_double_wide_mlp": FLAG,
            "enable_moe_block": FLAG,
            "num_experts": SIZE,
            "top_k_experts": SIZE,
            "moe_intermediate_size": SIZE,
            "hidden_size_per_layer_input": size(0),
            "vocab_size_per_layer_input": SIZE,
            "use_bidirectional_attention": WORD,
            "per_layer_config": OBJECT,
        },
        defaults={
            "vocab_size": 262_144,
            "hidden_size": 2_304,
            "intermediate_size": 9_216,
            "num_hidden_layers": 30,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "global_head_dim": 512,
            "max_position_embeddings": 131_072,
            "hidden_act": "gelu_pytorch_tanh",
            "norm_eps": 1e-6,
            "sliding_window": 512,
            "tie_word_embeddings": True,
            "attention_k_eq_v": False,
            "num_kv_shared_layers": 0,
            "use_double_wide_mlp": False,
            "enable_moe_block": False,
            "hidden_size_per_layer_input": 256,
            "vocab_size_per_layer_input": 262_144,
            "rope_parameters": {
                FULL: {
                    "rope_type": "proportional",
                    "rope_theta": 1_000_000.0,
                    "partial_rotary_factor": 0.25,
                },
                SLIDING: {"rope_type": "default", "rope_theta": 10_000.0},
            },
        },
        # Of images alone, for "vision"; "all" would be no causal model.
        accepts={
            "hidden_act": ("gelu_pytorch_tanh",),
            "use_bidirectional_attention": ("vision",),
        },
        derive=_complete,
        ropes=RopeSpec(
            kinds={"default": "default", "proportional": "proportional"}, own_sliding=True
        ),
        partial_rotary=1.0,
    ),
    build=build,
)
