"""What the keys of JSON objects are called on a page, and the units of their values."""

from __future__ import annotations

from collections.abc import Sequence

_CALLED = {
    # count
    "parameters.unique": "unique: a tied table once",
    "parameters.stored": "stored in the file",
    "parameters.active": "active: what one token uses",
    "parameters.embedding": "embedding",
    "parameters.layers": "all layers",
    "parameters.head": "head: a table of its own",
    "parameters.with_buffers": "with buffers",
    "parameters.with_prediction_layers": "with layers that predict further tokens",
    "parameters.with_towers": "with the parts for images and sound",
    "parameters.active_without_embedding": "active, the embedding left out",
    "bytes.unique": "unique parameters",
    "bytes.stored": "tensors as stored",
    "bytes.dtype": "type of the weights",
    "bytes.file": "file",
    "bytes.header": "header of the file",
    "flop_per_token.weights": "weights: 2 × parameters that do arithmetic",
    "flop_per_token.matmul": "of these, matrix products",
    "flop_per_token.per_visible_token": "each visible token adds",
    "crossover_tokens": "attention equals the weights at",
    "kv_bytes_per_token": "KV cache, a token",
    "state_bytes": "states, a sequence",
    "prompt.tokens": "tokens of the prompt",
    "prompt.flop": "causal, head on the last row only: ours",
    "prompt.flop_causal": "causal, head on every row",
    "prompt.flop_full_square": "full attention square, head on every row",
    "prompt.flop_rows_before": "ours, without the last row",
    "answer.passes": "passes, one a token",
    "answer.layer_runs": "layer runs",
    "answer.flop_weights": "weights",
    "answer.flop_attention": "attention",
    "answer.flop_total": "answer together",
    "latent": "latent attention",
    "latent.per_visible_token_expanded": "expanded: each visible token adds",
    "latent.per_visible_token_absorbed": "absorbed: each visible token adds",
    "latent.crossover_tokens_expanded": "expanded: attention equals the weights at",
    "latent.crossover_tokens_absorbed": "absorbed: attention equals the weights at",
    "latent.kv_elements_per_token": "elements of the cache, a token",
    "windows.tokens": "window",
    "windows.flop_per_visible_token": "FLOP a visible token",
    "windows.kv_bytes_per_token": "KV cache, a token",
    "at.total": "together",
    "at.other": "other, beside it",
    "at.total_with_other": "with the other",
    # plan
    "fits": "fits",
    "binds": "what does not fit",
    "memory.weights": "weights",
    "memory.kv": "KV cache of all requests",
    "memory.activations": "work: values of a pass",
    "memory.total": "together",
    "memory.available": "there is",
    "machine.title": "machine",
    "machine.count": "devices",
    "machine.memory": "memory of each",
    "machine.bytes_per_second": "reads, each",
    "machine.flop_per_second": "products, each",
    "machine.flop_type": "products in",
    "machine.figures": "whose figures",
    "dtype": "type of the weights",
    "estimated": "bytes are estimated",
    "kv_type": "type of the KV cache",
    "prompt": "tokens of a prompt",
    "answer": "tokens of an answer",
    "concurrency": "requests at once",
    "max_concurrency": "such requests at once, at most",
    "prefill_seconds": "first token, at least",
    "prefill_bound": "what binds the first token",
    "prefill_flop": "work of all prompts",
    "decode_seconds_per_token": "each token, at least",
    "tokens_per_second": "tokens a second, at most",
    "tokens_per_second_each": "of each request",
    "bound": "what binds each token",
    "answer_flop": "work of all answers",
    "weight_bytes_per_pass": "weights that a pass reads",
    "cache_bytes_per_pass": "cache that a pass reads, on average",
    "ways.devices": "such devices",
    "ways.tokens": "tokens of one request, at most",
    "ways.requests": "such requests at once, at most",
    "ways.dtypes": "weights in another type",
    "dtypes.bytes": "bytes of the weights",
    "cost": "cost of these requests, at least",
    "cost_per_million_tokens": "cost of a million tokens of answers",
}
_UNITS = (  # a word of the key, or of the one before it -> the unit; the first that is found
    ("tokens_per_second", "tokens/s"),
    ("bytes_per_second", "B/s"),
    ("flop_per_second", "FLOP/s"),
    ("seconds", "s"),
    ("bytes", "B"),
    ("memory", "B"),
    ("flop", "FLOP"),
    ("per_visible_token", "FLOP"),
    ("tokens", "tokens"),
    ("requests", "requests"),
)
_WITHIN = (("parameters", ""), ("bytes", "B"), ("memory", "B"), ("flop_per_token", "FLOP"))
_AS_WRITTEN = "accepted_unknown"  # what is inside are keys of a config, not ours
_PLAIN = ("cost", "passes", "layer_runs", "layers")


def label(path: Sequence[str | int]) -> str:
    """What stands beside a value: by its last two keys, by the last one, or in the key's words."""
    keys = [key for key in path if isinstance(key, str)]
    last = keys[-1]
    if _AS_WRITTEN in keys:
        return ".".join(keys[keys.index(_AS_WRITTEN) + 1 :] or ["keys"])
    return _CALLED.get(".".join(keys[-2:])) or _CALLED.get(last) or last.replace("_", " ")


def unit(path: Sequence[str | int]) -> str:
    """The unit of the number at a path; nothing for a plain number."""
    keys = [key for key in path if isinstance(key, str)]
    last = keys[-1]
    if _AS_WRITTEN in keys:
        return ""
    if last == "visible":
        return "tokens"
    if last.startswith(_PLAIN):
        return ""
    inside = [found for word, found in _WITHIN if word in keys[:-1]]
    return next((found for word, found in _UNITS if word in last), "") if not inside else inside[0]
