"""`ModelConfig`: what a model's config says, understood key by key, or refused.

A key is *understood* (its family reads it), *neutral* (it cannot change a logit: config_keys.py, or
any key whose value is null, false, empty or the family's own default) or *unknown*. Unknown keys
and values that cannot be honoured are all named in one error, with the way out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields

from forwardpass.config_keys import (
    NEUTRAL,
    NEUTRAL_VALUES,
    REASONS,
    REPEATS,
    brings_its_own_code,
)
from forwardpass.config_kinds import KINDS, NUMBERS, Kind
from forwardpass.config_rope import RopeSpec, check_dims, check_theta, read_ropes
from forwardpass.errors import ConfigError, did_you_mean
from forwardpass.rope import FULL, LAYER_TYPES, SLIDING, Rope, finite, key_shown, shown

_ROPE = ("rope_theta", "rope_scaling", "rope_parameters")
_SPELLINGS = {
    "torch_dtype": "dtype",
    "rms_norm_eps": "norm_eps",
    "hidden_activation": "hidden_act",
}
_COMMON = frozenset(
    {
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "intermediate_size",
        "max_position_embeddings",
        "norm_eps",
        "tie_word_embeddings",
        "layer_types",
        *("model_type", "hidden_act", "dtype"),
    }
)
# Where null says "none, or derived" and not "the family's default".
_NULL_SAYS_NONE = frozenset(
    {
        *("num_key_value_heads", "head_dim", "sliding_window"),
        *("attn_logit_softcapping", "final_logit_softcapping"),
    }
)
_MAX_SHOWN = 40  # problems listed in one error


@dataclass(frozen=True)
class ModelConfig:
    """The sizes and switches of one model, named as in `config.json`.

    `layer_types` has one entry a layer; `rope_parameters` one for each layer type that occurs.
    `rope_factors` says that the file carries the rope divisors as a tensor of head_dim / 2.
    `no_rope_layers` has a 1 for each layer that turns, as in SmolLM3's configs; empty: all do.
    `own`: what the keys say that the family alone has (`ConfigSpec.keys`), read by `whole`,
    `number`, `flag`, `word` and `entries`. Without attention heads their number and head_dim are 0.
    `accepted_unknown` lists keys that the caller chose to load without.
    """

    model_type: str
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    max_position_embeddings: int
    hidden_act: str
    norm_eps: float
    tie_word_embeddings: bool
    layer_types: tuple[str, ...]
    rope_parameters: Mapping[str, Rope] = field(default_factory=dict)
    sliding_window: int | None = None
    attention_bias: bool = False
    mlp_bias: bool = False
    query_pre_attn_scalar: float | None = None
    final_logit_softcapping: float | None = None
    attn_logit_softcapping: float | None = None
    embedding_multiplier: float = 1.0
    attention_multiplier: float | None = None
    residual_multiplier: float = 1.0
    logits_scaling: float = 1.0
    logit_scale: float = 1.0
    use_qk_norm: bool = False
    no_rope_layers: tuple[int, ...] = ()
    qk_layernorm: bool = False
    use_parallel_residual: bool = False
    num_ln_in_parallel_attn: int = 1
    do_layer_norm_before: bool = True
    word_embed_proj_dim: int | None = None
    rotary_dim: int | None = None
    dtype: str = "float32"
    rope_factors: bool = False
    own: Mapping[str, object] = field(default_factory=dict)
    accepted_unknown: tuple[tuple[str, object], ...] = ()

    def window(self, layer: int) -> int | None:
        """How many positions layer `layer` sees, itself included; None where it sees all."""
        return self.sliding_window if self.layer_types[layer] == SLIDING else None

    @property
    def context(self) -> int:
        """How many tokens a sequence may have: what was trained, and what the rope is right for."""
        limits = [rope.limit for rope in self.rope_parameters.values() if rope.limit]
        return min([self.max_position_embeddings, *limits])

    def rope(self, layer: int) -> Rope:
        """The rotary parameters of layer `layer`."""
        return self.rope_parameters[self.layer_types[layer]]

    def has(self, key: str) -> bool:
        """Whether the family's own `key` is set, by the config or by default."""
        return self.own.get(key) is not None

    def _own(self, key: str) -> object:
        if not self.has(key):
            raise ConfigError(f"{key} is missing or null, which a {self.model_type} needs")
        return self.own[key]

    def whole(self, key: str) -> int:
        """The family's own `key`, a whole number.

        Errors: ConfigError where the config sets none; so of the other kinds.
        """
        value = self._own(key)
        assert isinstance(value, int)
        return value

    def number(self, key: str) -> float:
        """The family's own `key`, a number."""
        value = self._own(key)
        assert isinstance(value, int | float)
        return float(value)

    def flag(self, key: str) -> bool:
        """The family's own `key`, true or false."""
        value = self._own(key)
        assert isinstance(value, bool)
        return value

    def word(self, key: str) -> str:
        """The family's own `key`, a string."""
        value = self._own(key)
        assert isinstance(value, str)
        return value

    def entries(self, key: str) -> tuple[object, ...]:
        """The family's own `key`, a list."""
        value = self._own(key)
        assert isinstance(value, list | tuple)
        return tuple(value)


class _Needed(dict[str, object]):
    """Settings of a model, of which one that is asked for and absent was set to null."""

    def __init__(self, values: Mapping[str, object], where: str) -> None:
        super().__init__(values)
        self.where = where

    def __missing__(self, key: str) -> object:
        raise ConfigError(f"{self.where}: {key} is null, where this family needs a value")


Derive = Callable[[dict[str, object]], "list[str] | None"]


def _nothing_to_derive(values: dict[str, object]) -> None:
    """Most families derive nothing from other keys."""


@dataclass(frozen=True)
class ConfigSpec:
    """What one family understands in a config.

    `understood`: keys it reads beyond the common ones. `keys`: those that it alone has, with the
    kind of their values; the builder reads them from `ModelConfig.own`, and null there says none.
    `defaults`: its values for absent keys (for a key that is not understood: the one value that is
    neutral). `spellings`: its own names for common keys. `accepts`: the values that can be
    honoured. `derive` fills in what follows from
    other keys, such as which layers slide, and returns what cannot be honoured. `rope` is False for
    families without rotary positions, `ropes` says what theirs can be; `partial_rotary`: the share
    of each head that turns where the config names none (None: whole heads, always). `grouped` is
    False for those whose heads share the hidden width and are never grouped; `full_width` is True
    for those whose heads share it and may be grouped. `attention` is False for those without
    attention heads. `layer_kinds`: layer types that it has besides the two of attention.
    """

    defaults: Mapping[str, object] = field(default_factory=dict)
    understood: frozenset[str] = frozenset()
    neutral: frozenset[str] = frozenset()
    spellings: Mapping[str, str] = field(default_factory=dict)
    accepts: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    derive: Derive = _nothing_to_derive
    rope: bool = True
    ropes: RopeSpec = field(default_factory=RopeSpec)
    partial_rotary: float | None = None
    grouped: bool = True
    full_width: bool = False
    attention: bool = True
    keys: Mapping[str, Kind] = field(default_factory=dict)
    layer_kinds: tuple[str, ...] = ()

    @property
    def known(self) -> frozenset[str]:
        """Every key that this family reads, under its standard name."""
        rope = _ROPE if self.rope else ()
        part = () if self.partial_rotary is None else ("partial_rotary_factor",)
        return _COMMON | self.understood | {*rope, *part, *self.keys}


def read_config(
    raw: Mapping[str, object],
    spec: ConfigSpec,
    where: str = "config.json",
    accept_unknown: Iterable[str] = (),
) -> ModelConfig:
    """The config in `raw`, checked and completed by the family's `spec`.

    Raises ConfigError that lists every unknown key and every value that cannot be honoured.
    """
    accepted = frozenset(accept_unknown)
    problems: list[str] = []
    values, unknown = _sort_keys(raw, spec, problems)
    taken = tuple(sorted((key, unknown.pop(key)) for key in set(unknown) & accepted))
    for key, value in unknown.items():
        # Finding a near name takes a while, and nobody reads a thousand.
        near = did_you_mean(key, spec.known) if len(problems) < _MAX_SHOWN else ""
        near = f"  ({REASONS[key]})" if key in REASONS else near
        problems.append(f"{key_shown(key)} = {shown(value)}{near}")
    for key, default in spec.defaults.items():
        values.setdefault(key, default)
    values = {key: value for key, value in values.items() if value is not None}
    _check_kinds(values, {**KINDS, **spec.keys}, problems)
    for key, offered in spec.accepts.items():
        if values.get(key) not in (None, *offered):
            listed = ", ".join(map(shown, offered))
            problems.append(f"{key} = {shown(values[key])}  (this version runs {listed})")
    ropes: dict[str, Rope] = {}
    if spec.rope:
        kinds_known = LAYER_TYPES if "sliding_window" in spec.known else (FULL,)
        ropes = read_ropes(values, spec.ropes, kinds_known, spec.partial_rotary, problems)
    if problems:
        raise _refusal(where, problems, list(unknown))
    values = _Needed(values, where)
    problems += spec.derive(values) or []
    _complete(values, spec, where, problems)
    if problems:
        raise _refusal(where, problems, [])
    kinds = values["layer_types"]
    used = {kind: ropes[kind] for kind in ropes if kind in kinds}  # type: ignore[operator]
    check_dims(used, _whole(values["head_dim"]), problems)
    if problems:
        raise _refusal(where, problems, [])
    values["rope_parameters"] = used
    known_fields = {f.name for f in fields(ModelConfig)}
    chosen = {key: value for key, value in values.items() if key in known_fields}
    own = {key: values[key] for key in spec.keys if key in values}
    return ModelConfig(**chosen, own=own, accepted_unknown=taken)  # type: ignore[arg-type]


def _sort_keys(
    raw: Mapping[str, object], spec: ConfigSpec, problems: list[str]
) -> tuple[dict[str, object], dict[str, object]]:
    """Keys under their standard names, and the unknown ones."""
    values: dict[str, object] = {}
    unknown: dict[str, object] = {}
    repeats: dict[str, object] = {}
    spellings = {**_SPELLINGS, **spec.spellings}
    neutral_values = {**NEUTRAL_VALUES, **spec.defaults}
    for key, value in raw.items():
        name = spellings.get(key, key)
        if name in spec.known:
            if value is None:
                if name in _NULL_SAYS_NONE or name in spec.keys:
                    values.setdefault(name, None)
            elif values.get(name) in (None, value):
                values[name] = value
            else:
                problems.append(
                    f"{key} = {shown(value)} contradicts {name} = {shown(values[name])}"
                )
        elif key in NEUTRAL or key in spec.neutral or value is None:
            continue
        elif key in REPEATS:
            repeats[key] = value
        elif key == "auto_map" and not brings_its_own_code(value, raw.get("model_type")):
            continue
        elif key in neutral_values:
            if value != neutral_values[key]:
                unknown[key] = value
        elif not _is_nothing(value):
            unknown[key] = value
    absent = {"partial_rotary_factor": spec.partial_rotary or 1.0, **spec.defaults}
    for key, value in repeats.items():
        name = REPEATS[key]
        if value != values.get(name, absent.get(name)) and not _is_nothing(value):
            unknown[key] = value
    check_theta(values, problems)
    return values, unknown


def _is_nothing(value: object) -> bool:
    return value is False or (not value and isinstance(value, str | list | dict))


def _check_kinds(values: dict[str, object], kinds: Mapping[str, Kind], problems: list[str]) -> None:
    """Drops and names what has a wrong type or lies out of range."""
    for key in list(values):
        kind = kinds.get(key)
        if kind is not None and not kind.fits(values[key]):
            problems.append(f"{key} = {shown(values.pop(key))}  (wanted {kind.wanted})")
        elif kind in NUMBERS:
            values[key] = finite(values[key])


def _complete(values: dict[str, object], spec: ConfigSpec, where: str, problems: list[str]) -> None:
    """Fills in what follows from other keys, and checks that the sizes fit together."""
    if not spec.attention:
        values |= dict.fromkeys(("num_attention_heads", "num_key_value_heads", "head_dim"), 0)
    required = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
    missing = [key for key in (*required, "intermediate_size") if key not in values]
    if missing and problems:
        raise _refusal(where, problems, [])  # which says why
    if missing:
        raise ConfigError(
            f"{where}: without settings that it needs", *missing, advice="Is it complete?"
        )
    heads, hidden, layers = (
        _whole(values[key]) for key in ("num_attention_heads", "hidden_size", "num_hidden_layers")
    )
    if spec.attention:
        _check_heads(values, spec, hidden, heads, problems)
    known = (*LAYER_TYPES, *spec.layer_kinds)
    kinds = values.setdefault("layer_types", [FULL] * layers)
    if (
        not isinstance(kinds, list | tuple)
        or len(kinds) != layers
        or not all(kind in known for kind in kinds)
    ):
        problems.append(f"layer_types is not a list of {layers} entries from {known}")
        return
    values["layer_types"] = tuple(kinds)
    if SLIDING in kinds and "sliding_window" not in spec.known:
        problems.append("layer_types has sliding layers, which this family does not have")
    elif SLIDING in kinds and values.get("sliding_window") is None:
        problems.append("layer_types has sliding layers, but sliding_window is not set")


def _check_heads(
    values: dict[str, object], spec: ConfigSpec, hidden: int, heads: int, problems: list[str]
) -> None:
    """Completes the numbers of heads, and checks that they share the width as the family wants."""
    groups = _whole(values.setdefault("num_key_value_heads", heads))
    if "head_dim" not in values and hidden % heads:
        problems.append(f"hidden_size {hidden} is not a multiple of {heads} attention heads")
    head_dim = _whole(values.setdefault("head_dim", hidden // heads))
    if heads % groups:
        problems.append(f"{heads} attention heads are not a multiple of {groups} key/value heads")
    if spec.full_width and head_dim * heads != hidden:
        problems.append(
            f"{heads} heads of {head_dim}, which in this family together are as wide as "
            f"hidden_size ({hidden})"
        )
    if not spec.grouped and (groups != heads or head_dim * heads != hidden):
        problems.append(
            f"{groups} key/value heads of {head_dim}, where this family has as many as attention "
            f"heads ({heads}), which together are as wide as hidden_size ({hidden})"
        )


def _whole(value: object) -> int:
    assert isinstance(value, int)
    return value


def _refusal(where: str, problems: list[str], unknown: list[str]) -> ConfigError:
    settings = "1 setting" if len(problems) == 1 else f"{len(problems)} settings"
    what = "does not understand" if len(unknown) == len(problems) else "cannot honour"
    details = problems[:_MAX_SHOWN]
    if len(problems) > _MAX_SHOWN:
        details.append(f"… and {len(problems) - _MAX_SHOWN} more")
    advice = "Ignoring a setting could change the answer, so loading stops here."
    if unknown and len(problems) <= _MAX_SHOWN:
        flags = " ".join(f"--accept-unknown {key_shown(key)}" for key in unknown)
        advice += f"\n  {flags}   loads without it and says so in the account"
    return ConfigError(f"{where}: {settings} that this version {what}", *details, advice=advice)
