"""GLM-5 and GLM-5.2.

Differs from `deepseek_v32.py`: some layers have no indexer and read the tokens that the last layer
with one chose (`indexer_types`, or a pattern or period that says the same); neighbors turn in the
indexer, too. It is counted, not run. Of layers that predict further tokens no total tells what they
hold, so they are not counted.

Source: arXiv:2603.12201; transformers 5.24, models/glm_moe_dsa. Weight names as in the checkpoints.
"""

from __future__ import annotations

from forwardpass.architectures.deepseek_v2 import EXPERT_STACKS, TRAINING
from forwardpass.architectures.deepseek_v3 import STEERED_DEFAULTS
from forwardpass.architectures.deepseek_v32 import (
    INDEXED_KEYS,
    INDEXED_SPELLINGS,
    build_indexed,
    indexed,
)
from forwardpass.architectures.family import Family
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.config_kinds import either, listed, size, word
from forwardpass.graph.graph import Graph
from forwardpass.rope import shown

_SHORT = {"F": "full", "S": "shared"}
_KIND = word("full", "shared")


def build(config: ModelConfig) -> Graph:
    """The graph of a GLM-5 with these sizes."""
    choosing = [kind == "full" for kind in config.entries("indexer_types")]
    return build_indexed(config, choosing, interleaved=True)


def _derive(values: dict[str, object]) -> list[str]:
    """Says which layers have an indexer, too: by list, by pattern, or every so many layers."""
    problems = indexed(values)
    layers = values["num_hidden_layers"]
    assert isinstance(layers, int)
    stated, pattern = values.get("indexer_types"), values.pop("index_topk_pattern", None)
    period = values.pop("index_topk_freq", 1)
    first = values.pop("index_skip_topk_offset", 2)
    assert isinstance(period, int)
    assert isinstance(first, int)
    if stated is not None:
        kinds = stated
    elif pattern is not None:
        kinds = [_SHORT.get(str(kind), kind) for kind in pattern]  # type: ignore[attr-defined]
    else:
        kinds = [
            "shared" if max(i - first + 1, 0) % max(period, 1) else "full" for i in range(layers)
        ]
    assert isinstance(kinds, list | tuple)
    values["indexer_types"] = tuple(kinds)
    if len(kinds) != layers or not all(map(_KIND.fits, kinds)):
        problems.append(f"indexer_types is not {layers} times full or shared")
    elif kinds[0] != "full":
        problems.append(f"indexer_types = {shown(kinds)}  (the first layer has none to share)")
    return problems


FAMILY = Family(
    "glm_moe_dsa",
    spec=ConfigSpec(
        understood=frozenset({"attention_bias"}),
        # The router is kept in another type; prediction layers, which are not run, share a choice.
        neutral=TRAINING | {"moe_router_dtype", "index_share_for_mtp_iteration"},
        keys={
            **INDEXED_KEYS,
            "indexer_types": listed(_KIND),
            "index_topk_pattern": either(word(), listed(_KIND)),
            "index_topk_freq": size(0),
            "index_skip_topk_offset": size(0),
        },
        spellings=INDEXED_SPELLINGS,
        defaults={
            "vocab_size": 154_880,
            "hidden_size": 6_144,
            "intermediate_size": 12_288,
            "moe_intermediate_size": 2_048,
            "num_hidden_layers": 78,
            "num_attention_heads": 64,
            "max_position_embeddings": 202_752,
            "hidden_act": "silu",
            "norm_eps": 1e-5,
            "tie_word_embeddings": False,
            "first_k_dense_replace": 3,
            "kv_lora_rank": 512,
            "q_lora_rank": 2_048,
            "qk_nope_head_dim": 192,
            "qk_rope_head_dim": 64,
            "v_head_dim": 256,
            "n_routed_experts": 256,
            "n_shared_experts": 1,
            "num_experts_per_tok": 8,
            "n_group": 1,
            "topk_group": 1,
            "norm_topk_prob": True,
            "routed_scaling_factor": 2.5,
            "index_n_heads": 32,
            "index_head_dim": 128,
            "index_topk": 2_048,
            "index_topk_freq": 1,
            "index_skip_topk_offset": 2,
            "num_nextn_predict_layers": 0,
            "rope_interleave": True,
            "indexer_rope_interleave": True,
            **STEERED_DEFAULTS,
        },
        accepts={"hidden_act": ("silu",), "moe_layer_freq": (1,)},
        derive=_derive,
    ),
    build=build,
    stacks=EXPERT_STACKS,
)
