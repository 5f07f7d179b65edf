"""DeepSeek-V3.2 and V3.2-Exp.

Differs from `deepseek_v3.py`: an indexer in each layer scores every visible token for a query,
and attention reads the `index_topk` best of them alone. The indexer's queries come from the same
narrow row as attention's, its one key a token is cached beside the latent row, and its heads are
weighed by a projection of their own. It is counted, not run.

Source: DeepSeek-V3.2-Exp (DeepSeek-AI 2025); transformers 5.24, models/deepseek_v32. Weight names
as in the checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence

from forwardpass.architectures.deepseek_v2 import (
    EXPERT_STACKS,
    LATENT_KEYS,
    TRAINING,
    one_key_a_head,
    shared_and_routed,
)
from forwardpass.architectures.deepseek_v3 import (
    DEEPSEEK_DEFAULTS,
    SPELLINGS,
    STEERED_KEYS,
    prediction_layer,
    steered,
)
from forwardpass.architectures.family import Family
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.config_kinds import SIZE, listed, word
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.experts import swiglu
from forwardpass.graph.graph import Graph, Value
from forwardpass.graph.latent import (
    Indexer,
    Latent,
    latent_keys,
    latent_mix,
    latent_queries,
    select_tokens,
)
from forwardpass.rope import FULL

INDEXED = "indexed_attention"


def build(config: ModelConfig) -> Graph:
    """The graph of a DeepSeek-V3.2 with these sizes."""
    return build_indexed(config, [True] * config.num_hidden_layers, interleaved=False)


def build_indexed(config: ModelConfig, choosing: Sequence[bool], interleaved: bool) -> Graph:
    """The same with an indexer in the layers that are `choosing`; others read what the last chose.

    `interleaved`: in the indexer, too, neighbors turn.
    """
    g = GraphBuilder(config)
    sizes, routing = Latent.of(config), steered(config)
    heads, width, most = (config.whole(f"index_{key}") for key in ("n_heads", "head_dim", "topk"))
    indexer = Indexer(heads, width, most, interleaved)
    chosen: Value | None = None
    x = g.embed("model.embed_tokens")  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"model.layers.{i}", i):
            y = g.rms_norm(x, "input_layernorm")
            q, source = latent_queries(g, y, i, sizes)
            keys = latent_keys(g, y, i, sizes)
            if choosing[i] or chosen is None:
                chosen = select_tokens(g, y, source, i, sizes, indexer)  # n k
            x = g.add(x, latent_mix(g, q, keys, i, sizes, (chosen, most)))
            y = g.rms_norm(x, "post_attention_layernorm")
            if config.entries("mlp_layer_types")[i] == "dense":
                y = swiglu(g, y, "mlp", config.intermediate_size)
            else:
                y = shared_and_routed(g, y, routing)
            x = g.add(x, y)
    x = g.rms_norm(g.wanted_rows(x), "model.norm")  # r d
    return g.finish(g.head(x, tied_to="model.embed_tokens"))  # r v


def indexed(values: dict[str, object]) -> list[str]:
    """Says which layers are mixtures, and that attention is indexed in all of them."""
    problems = one_key_a_head(values)
    layers, dense = values["num_hidden_layers"], values["first_k_dense_replace"]
    assert isinstance(layers, int)
    assert isinstance(dense, int)
    dense = min(dense, layers)
    kinds = values.setdefault("mlp_layer_types", ["dense"] * dense + ["sparse"] * (layers - dense))
    assert isinstance(kinds, list | tuple)
    if len(kinds) != layers:
        problems.append(f"mlp_layer_types has {len(kinds)} entries for {layers} layers")
    if values.get("layer_types") not in (None, [INDEXED] * layers):
        problems.append(f"layer_types is not {INDEXED} in every layer")
    values["layer_types"] = [FULL] * layers  # whose rope is that of all
    if "q_lora_rank" not in values:
        problems.append("q_lora_rank is missing, from which the indexer's queries are made")
    return problems


INDEXED_KEYS = {
    **LATENT_KEYS,
    **STEERED_KEYS,
    **dict.fromkeys(("index_n_heads", "index_head_dim", "index_topk"), SIZE),
    "mlp_layer_types": listed(word("dense", "sparse")),
}
INDEXED_SPELLINGS = {**SPELLINGS, "num_experts": "n_routed_experts"}

FAMILY = Family(
    "deepseek_v32",
    spec=ConfigSpec(
        understood=frozenset({"attention_bias"}),
        neutral=TRAINING,
        keys=INDEXED_KEYS,
        spellings=INDEXED_SPELLINGS,
        defaults={
            **DEEPSEEK_DEFAULTS,
            "max_position_embeddings": 163_840,
            "index_n_heads": 64,
            "index_head_dim": 128,
            "index_topk": 2_048,
            "num_nextn_predict_layers": 0,
        },
        accepts={"hidden_act": ("silu",), "moe_layer_freq": (1,)},
        derive=indexed,
    ),
    build=build,
    stacks=EXPERT_STACKS,
    prediction_layer=prediction_layer,
)
