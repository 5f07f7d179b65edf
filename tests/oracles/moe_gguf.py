"""What llama.cpp's converters do to mixtures of experts.

Source: llama.cpp, conversion/{base,llama,qwen,olmo,gpt_oss}.py: the experts of a layer as one
tensor each for gate, up and down, outputs × inputs.
"""

from __future__ import annotations

from collections.abc import Mapping

import gguf
import torch
from transformers import PreTrainedConfig

MOE_ARCHITECTURES = {
    "mixtral": gguf.MODEL_ARCH.LLAMA,
    "qwen2_moe": gguf.MODEL_ARCH.QWEN2MOE,
    "qwen3_moe": gguf.MODEL_ARCH.QWEN3MOE,
    "olmoe": gguf.MODEL_ARCH.OLMOE,
    "gpt_oss": gguf.MODEL_ARCH.GPT_OSS,
}
State = dict[str, torch.Tensor]


def split_experts(state: Mapping[str, torch.Tensor], kind: str) -> State:
    """The state, each expert table under a name of its own, outputs × inputs."""
    found: State = {}
    for name, tensor in state.items():
        if ".experts." not in name:
            found[f"{name}.weight" if name.endswith("sinks") else name] = tensor
            continue
        module = name.removesuffix("_bias")
        ending = "bias" if module != name else "weight"
        values = tensor.transpose(1, 2) if kind == "gpt_oss" and tensor.dim() == 3 else tensor
        if not module.endswith("gate_up_proj"):
            found[f"{module}.{ending}"] = values
            continue
        parts = (values[:, ::2], values[:, 1::2]) if kind == "gpt_oss" else values.chunk(2, 1)
        for word, part in zip(("gate", "up"), parts, strict=True):
            found[f"{module.replace('gate_up', word)}.{ending}"] = part
    return found


def joined_experts(stored: Mapping[str, torch.Tensor], kind: str) -> State:
    """The inverse of `split_experts`."""
    found: State = {}
    for name, tensor in stored.items():
        module, _, ending = name.rpartition(".")
        called = f"{module}_bias" if ending == "bias" else module
        if module.endswith("sinks"):
            found[module] = tensor
        elif ".experts." not in name:
            found[name] = tensor
        elif module.endswith("gate_proj"):
            up = stored[name.replace("gate_proj", "up_proj")]
            pair = torch.stack((tensor, up), 2).flatten(1, 2)
            both = pair if kind == "gpt_oss" else torch.cat((tensor, up), 1)
            found[called.replace("gate_proj", "gate_up_proj")] = _turned(both, kind)
        elif not module.endswith("up_proj"):
            found[called] = _turned(tensor, kind)
    return found


def _turned(tensor: torch.Tensor, kind: str) -> torch.Tensor:
    return tensor.transpose(1, 2) if kind == "gpt_oss" and tensor.dim() == 3 else tensor


def write_moe(writer: gguf.GGUFWriter, config: PreTrainedConfig) -> None:
    """The metadata of the experts, and the window of gpt-oss."""
    kind = config.model_type
    local = hasattr(config, "num_local_experts")
    writer.add_expert_count(config.num_local_experts if local else config.num_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    if kind.startswith("qwen"):
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if kind == "qwen2_moe":
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)
    if kind == "gpt_oss":
        writer.add_expert_feed_forward_length(config.intermediate_size)
        writer.add_sliding_window(config.sliding_window)
