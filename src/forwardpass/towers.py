"""What the other parts of a model hold, from its config: towers that see images.

They are not run. A model whose tower has no rule here is counted by its text part alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from forwardpass.config_kinds import Kind, listed, size

_SIDE = size(most=65_536)
_PAIR = listed(_SIDE)


def tower_elements(raw: Mapping[str, object]) -> int | None:
    """Parameters of what the config describes besides its text part; None where no rule says."""
    rule = _RULES.get(str(raw.get("model_type")))
    vision, text = raw.get("vision_config"), raw.get("text_config")
    if rule is None or not isinstance(vision, Mapping) or not isinstance(text, Mapping):
        return None
    seen, audio = rule(vision, text), raw.get("audio_config")
    if audio is None or seen is None:
        return seen
    if rule is not _gemma4 or not isinstance(audio, Mapping):
        return None
    heard = _gemma4_audio(audio, text)
    return None if heard is None else seen + heard


def _kimi_k25(vision: Mapping[str, object], text: Mapping[str, object]) -> int | None:
    """MoonViT and the projector behind it.

    Patches of three colors become rows, to which a learned grid of places is added; each layer has
    two norms, four square projections and an MLP of two, all with biases; a last norm. The
    projector norms rows, joins those of a small square, and has a square projection and one to the
    text's width.

    Source: transformers 5.24, models/kimi_k25. The model's own config spells some keys otherwise.
    """
    sizes = (
        _whole(vision, 1_152, "hidden_size", "vt_hidden_size"),
        _whole(vision, 4_304, "intermediate_size", "vt_intermediate_size"),
        _whole(vision, 27, "num_hidden_layers", "vt_num_hidden_layers"),
        _whole(vision, 14, "patch_size"),
        _whole(vision, 64, "pos_emb_height", "init_pos_emb_height"),
        _whole(vision, 64, "pos_emb_width", "init_pos_emb_width"),
        _whole(text, 7_168, "hidden_size"),
    )
    if 0 in sizes:
        return None
    d, f, layers, patch, high, wide, width = sizes
    merged = _read(vision, [2, 2], _PAIR, "merge_kernel_size")
    if not isinstance(merged, list | tuple) or len(merged) != 2:
        return None
    joined: int = d * merged[0] * merged[1]
    patches = 3 * patch * patch * d + d + high * wide * d
    layer = _layer(d, f)
    projector = 2 * d + (joined * joined + joined) + (joined * width + width)
    return patches + layers * layer + 2 * d + projector


def _layer(d: int, f: int) -> int:
    """Two norms, four square projections and an MLP of two tables, all with biases."""
    return 2 * 2 * d + 4 * (d * d + d) + (d * f + f) + (f * d + d)


def _gemma4(vision: Mapping[str, object], text: Mapping[str, object]) -> int | None:
    """A tower of Gemma's own layers, and a projection to the text's width; no biases.

    Patches of three colors become rows, to which a learned row for each of two axes is added; a
    layer has four norms, norms of query and key heads, and a gated MLP.

    Source: transformers 5.24, models/gemma4.
    """
    sizes = (
        _whole(vision, 768, "hidden_size"),
        _whole(vision, 3_072, "intermediate_size"),
        _whole(vision, 16, "num_hidden_layers"),
        _whole(vision, 12, "num_attention_heads"),
        _whole(vision, 12, "num_key_value_heads"),
        _whole(vision, 64, "head_dim"),
        _whole(vision, 16, "patch_size"),
        _whole(vision, 10_240, "position_embedding_size"),
        _whole(text, 2_304, "hidden_size"),
    )
    if 0 in sizes:
        return None
    d, f, layers, heads, groups, e, patch, places, width = sizes
    layer = 2 * d * (heads + groups) * e + 3 * d * f + 4 * d + 2 * e
    return 3 * patch * patch * d + 2 * places * d + layers * layer + d * width


def _gemma4_audio(audio: Mapping[str, object], text: Mapping[str, object]) -> int | None:
    """A conformer that hears, and a projection to the text's width.

    Two convolutions of 3 × 3 with norms, and a projection of what they leave of each frame. A layer
    has two MLPs four times as wide with two norms each, attention of four square projections, one
    of distances and a scale of head elements, a gated convolution with two norms, and three norms.
    A projection out has the only bias.

    Source: transformers 5.24, models/gemma4 (`Gemma4AudioModel`).
    """
    sizes = (
        _whole(audio, 1_024, "hidden_size"),
        _whole(audio, 12, "num_hidden_layers"),
        _whole(audio, 8, "num_attention_heads"),
        _whole(audio, 5, "conv_kernel_size"),
        _whole(audio, 1_536, "output_proj_dims"),
        _whole(text, 2_304, "hidden_size"),
    )
    channels = _read(audio, [128, 32], _PAIR, "subsampling_conv_channels")
    if 0 in sizes or not isinstance(channels, list | tuple) or len(channels) != 2:
        return None
    d, layers, heads, taps, out, width = sizes
    first, second = channels
    rows: int = 9 * first + first + 9 * first * second + second + first // 4 * second * d
    mlps = 2 * (2 * 4 * d * d + 2 * d)
    e = d // heads
    attention = 4 * d * heads * e + d * d + e
    convolution = 3 * d * d + taps * d + 2 * d
    layer = mlps + attention + convolution + 3 * d
    return rows + layers * layer + (d * out + out) + out * width


def _qwen3_5(vision: Mapping[str, object], _: Mapping[str, object]) -> int | None:
    """A tower with biases everywhere, and what merges the rows of a small square.

    Patches of some frames become rows, to which a learned one is added; a layer has two norms, a
    fused projection, one out and an MLP of two; the merger a norm and an MLP of two.

    Source: transformers 5.24, models/qwen3_5 and models/qwen3_5_moe.
    """
    sizes = (
        _whole(vision, 1_152, "hidden_size"),
        _whole(vision, 4_304, "intermediate_size"),
        _whole(vision, 27, "depth"),
        _whole(vision, 3, "in_channels"),
        _whole(vision, 2, "temporal_patch_size"),
        _whole(vision, 16, "patch_size"),
        _whole(vision, 2_304, "num_position_embeddings"),
        _whole(vision, 2, "spatial_merge_size"),
        _whole(vision, 3_584, "out_hidden_size"),
    )
    if 0 in sizes:
        return None
    d, f, layers, colors, frames, patch, places, side, width = sizes
    joined = d * side * side
    patches = colors * frames * patch * patch * d + d + places * d
    layer = _layer(d, f)
    merger = 2 * d + (joined * joined + joined) + (joined * width + width)
    return patches + layers * layer + merger


def _llama4(vision: Mapping[str, object], text: Mapping[str, object]) -> int | None:
    """A tower, what shuffles its pixels, and a projection to the text's width.

    Patches become rows behind that of a class, to which learned places are added; norms before and
    after all layers. A layer has two norms, four square projections and an MLP of two, with biases;
    the adapter has two tables, the projection one, without.

    Source: transformers 5.24, models/llama4.
    """
    sizes = (
        _whole(vision, 768, "hidden_size"),
        _whole(vision, 5_632, "intermediate_size"),
        _whole(vision, 34, "num_hidden_layers"),
        _whole(vision, 3, "num_channels"),
        _whole(vision, 448, "image_size"),
        _whole(vision, 14, "patch_size"),
        _whole(vision, 4_096, "projector_input_dim"),
        _whole(vision, 4_096, "projector_output_dim"),
        _whole(vision, 7_680, "vision_output_dim"),
        _whole(text, 5_120, "hidden_size"),
    )
    if 0 in sizes:
        return None
    d, f, layers, colors, image, patch, inner, outer, seen, width = sizes
    places = (image // patch) ** 2 + 1
    rows = colors * patch * patch * d + d + places * d
    layer = _layer(d, f)
    return rows + 2 * 2 * d + layers * layer + f * inner + outer * outer + seen * width


def _whole(values: Mapping[str, object], default: int, *names: str) -> int:
    """The number under the first name that is there; 0 where it is no size."""
    found = _read(values, default, _SIDE, *names)
    return found if isinstance(found, int) else 0


def _read(values: Mapping[str, object], default: object, kind: Kind, *names: str) -> object:
    found = next((values[name] for name in names if values.get(name) is not None), default)
    return found if kind.fits(found) else None


_RULES: Mapping[str, Callable[[Mapping[str, object], Mapping[str, object]], int | None]] = {
    "gemma4": _gemma4,
    "kimi_k25": _kimi_k25,
    "llama4": _llama4,
    "qwen3_5": _qwen3_5,
    "qwen3_5_moe": _qwen3_5,
}
