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
from forwardpass.config_keys import NEUTRAL
from forwardpass.errors import ConfigError

# The outer model_type -> that of the text part where it names none.
_TEXT_TYPES = {"gemma3": "gemma3_text", "mistral3": "mistral", "llava": "llama"}
_OTHER_PARTS = frozenset({"vision_config"})
_ABOUT_IMAGES = frozenset(
    {
        *("boi_token_id", "boi_token_index", "eoi_token_id", "eoi_token_index", "ignore_index"),
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
_NOT_RUN = (r"(model\.)?(vision_tower|vision_model|multi_modal_projector)\..*",)


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
    return replace(family, places=_PLACES, not_run=_NOT_RUN)
