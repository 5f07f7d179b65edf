"""The text part of a config that describes more than text.

Such a config nests the text model's own below `text_config`. That part runs; what else the model
has (a tower that sees images, what projects them) does not, and its tensors are kept apart.

Source: transformers 5.24, models/{gemma3,mistral3,llava}: without images their passes are those of
the text model. Tensor names: `language_model.…` in published files, `model.language_model.…` in
newer ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from forwardpass.architectures.family import Family
from forwardpass.config_keys import NEUTRAL, brings_its_own_code
from forwardpass.errors import ConfigError

# The outer model_type -> that of the text part where it names none.
_TEXT_TYPES = {
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "kimi_k25": "kimi_k2",
    "llama4": "llama4_text",
    "llava": "llama",
    "mistral3": "mistral",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
}
_OTHER_PARTS = frozenset({"vision_config"})
_HEAR = ("gemma4",)  # of these an audio_config is a part, too
_ABOUT_IMAGES = frozenset(
    {
        *("boi_token_id", "boi_token_index", "eoi_token_id", "eoi_token_index", "ignore_index"),
        *("audio_token_id", "boa_token_id", "eoa_token_id", "eoa_token_index"),
        *("video_token_id", "vision_start_token_id", "vision_end_token_id"),
        "vision_soft_tokens_per_image",
        *("media_placeholder_token_id", "use_unified_vision_chunk", "video_placeholder"),
        *("projection_hidden_size", "projection_layer_norm_eps"),
        *("image_seq_length", "image_token_id", "image_token_index", "mm_tokens_per_image"),
        *("multimodal_projector_bias", "projector_hidden_act", "spatial_merge_size"),
        *("vision_feature_layer", "vision_feature_select_strategy"),
    }
)
# What the outer config says for the whole; where both say it, the outer one is asked.
_SHARED = ("tie_word_embeddings", "dtype", "torch_dtype", "quantization", "quantization_config")

_DTYPES = {"dtype": "torch_dtype", "torch_dtype": "dtype"}
_PLACES = {
    "model.language_model.": "model.",
    "language_model.": "",
}
_TOWERS = "vision_tower|vision_model|visual"
_BEHIND = "multi_modal_projector|mm_projector|embed_vision"
_NOT_RUN = (rf"(model\.)?({_TOWERS}|{_BEHIND})\..*",)
_NOT_HEARD = (r"(model\.)?(audio_tower|embed_audio)\..*",)


def text_part(
    raw: Mapping[str, object], where: str
) -> tuple[Mapping[str, object], str | None, str]:
    """The text model's config, the outer model_type (None: the config is of text alone), its place.

    Outer keys that are not understood keep their name behind the outer model_type, so that they are
    refused like any other. Errors: ConfigError for a config without its text part.
    """
    outer = raw.get("model_type")
    if not isinstance(outer, str) or outer not in _TEXT_TYPES:
        return raw, None, where
    inner = raw.get("text_config")
    if not isinstance(inner, Mapping):
        raise ConfigError(
            f"{where}: the text part of a {outer}, text_config, is missing",
            advice="Is it complete?",
        )
    found: dict[str, object] = {"model_type": _TEXT_TYPES[outer], **inner}
    for key, value in raw.items():
        if key in ("model_type", "text_config") or key in _OTHER_PARTS:
            continue
        if key == "audio_config" and outer in _HEAR:
            continue
        if key == "auto_map" and not brings_its_own_code(value, outer):
            continue
        if key in _SHARED and value is not None:
            found[key] = value
            if key in _DTYPES:
                found.pop(_DTYPES[key], None)
        elif key in inner and inner[key] == value:
            continue  # said twice
        elif key not in _ABOUT_IMAGES and key not in NEUTRAL:
            found[f"{outer}.{key}"] = value
    return found, outer, f"{where}, text_config"


def within(family: Family, outer: str | None) -> Family:
    """The family as its tensors are named inside of an outer model."""
    if outer is None:
        return family
    hears = _NOT_HEARD if outer in _HEAR else ()
    return replace(family, places=_PLACES, not_run=(*family.not_run, *_NOT_RUN, *hears))
