"""What a config says about how its checkpoint is quantized, or why that cannot be read.

`quantization_config` (transformers; the method is its `quant_method`) and `quantization` (MLX).
As in the rest of the config, each setting is understood, neutral, or refused by name.

Sources: transformers 5.24 utils/quantization_config.py; mlx-lm mlx_lm/utils.py; AutoGPTQ
quantization/config.py; compressed-tensors quantization/quant_scheme.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from forwardpass.dtypes import PACKING_GROUPS
from forwardpass.errors import ConfigError, did_you_mean
from forwardpass.formats.module_names import ModuleNames
from forwardpass.formats.packed import Scheme
from forwardpass.formats.packings import Awq, Gptq, InverselyNamedF8, Mlx, Mxfp4, ScaledF8
from forwardpass.formats.source import quoted

KEYS = ("quantization_config", "quantization")

_MOST_MODULES = 20_000
_MOST_SHOWN = 20
_MLX_BITS = (4, 8)
# How it was quantized, and how others should run it: neither changes a stored weight's value.
_NEUTRAL = frozenset(
    (
        *("act_group_aware", "activation_scale_ub", "backend", "batch_size"),
        *("block_name_to_quantize", "cache_block_outputs", "damp_auto_increment", "damp_percent"),
        *("dataset", "dequantize", "do_fuse", "exllama_config", "fuse_max_seq_len"),
        *("global_compression_ratio", "hyb_act", "max_input_length", "meta"),
        *("model_file_base_name", "model_name_or_path", "model_seqlen"),
        *("module_name_preceding_first_block", "modules_in_block_to_quantize"),
        *("modules_to_fuse", "mse", "pad_token_id", "quantization_status", "run_compressed"),
        *("static_groups", "sym", "tokenizer", "true_sequential", "use_cuda_fp16", "use_exllama"),
    )
)
_READABLE = (
    "awq (4 bits, gemm), gptq (4 bits), fp8, fbgemm_fp8, compressed-tensors (8-bit float), mxfp4, "
    "and MLX (affine, 4 and 8 bits)"
)


@dataclass
class _Settings:
    """The settings of one object: what was asked for, what was wrong."""

    values: Mapping[str, object]
    path: str
    asked: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def get(self, *names: str) -> object:
        """The value under the first of the names that is there; None where none is."""
        self.asked.update(names)
        found = [self.values[name] for name in names if self.values.get(name) is not None]
        if any(value != found[0] for value in found):
            said = " and ".join(f"{self.path}.{name}" for name in names if name in self.values)
            self.problems.append(f"{said} contradict each other")
        return found[0] if found else None

    def one_of(self, *names: str, offered: Iterable[object], default: object = None) -> object:
        """The value, which must be one of those offered; the first of them where it is not."""
        offered = list(offered)
        value = self.get(*names)
        value = default if value is None else value
        plain = value.lower() if isinstance(value, str) else value
        if any(plain == known and type(plain) is type(known) for known in offered):
            return plain
        shown = ", ".join("none" if known is None else str(known) for known in offered)
        self.refuse(names[0], f"this version reads {shown}")
        return offered[0]

    def whole(self, *names: str, offered: tuple[int, ...], default: int | None = None) -> int:
        value = self.one_of(*names, offered=offered, default=default)
        assert isinstance(value, int)
        return value

    def flag(self, name: str, default: bool) -> bool:
        return bool(self.one_of(name, offered=(default, not default), default=default))

    def modules(self, name: str) -> ModuleNames:
        value = self.get(name)
        if value is None:
            return ModuleNames()
        if (
            not isinstance(value, list)
            or len(value) > _MOST_MODULES
            or not all(isinstance(entry, str) and 0 < len(entry) <= 400 for entry in value)
        ):
            self.refuse(name, f"wanted a list of at most {_MOST_MODULES:,} names")
            return ModuleNames()
        return ModuleNames(tuple(value))

    def pass_over(self, *names: str) -> None:
        """Settings that do not change what the stored bytes mean."""
        self.asked.update(names)

    def refuse(self, name: str, why: str) -> None:
        self.problems.append(f"{self.path}.{name} = {quoted(self.values.get(name))}  ({why})")

    def unknown(self) -> dict[str, object]:
        """What nobody asked for and could matter."""
        return {
            name: value
            for name, value in self.values.items()
            if name not in self.asked | _NEUTRAL and value not in (None, False, "", [], {})
        }


def take_quantization(
    config: Mapping[str, object], where: str, accept_unknown: Iterable[str] = ()
) -> tuple[dict[str, object], Scheme | None, tuple[tuple[str, object], ...]]:
    """The config without what it says about quantization; that; the unknown settings accepted.

    An unknown setting is accepted by its path, such as `quantization_config.NAME`.

    Errors: `ConfigError` for a method, a number of bits or another setting that cannot be read.
    """
    rest = {key: value for key, value in config.items() if key not in KEYS}
    chosen = _chosen(config, where)
    if chosen is None:
        return rest, None, ()
    key, values = chosen
    settings = _Settings(values, key)
    read = _read_mlx if key == "quantization" else _method(settings, where)
    scheme = read(settings)
    accepted = frozenset(accept_unknown)
    taken: list[tuple[str, object]] = []
    refused: list[str] = []
    for name, value in settings.unknown().items():
        path = f"{key}.{name}"
        if path in accepted:
            taken.append((path, value))
        else:
            refused.append(path)
            few = len(refused) < _MOST_SHOWN and len(name) < _MOST_SHOWN * 4
            near = did_you_mean(name, settings.asked) if few else ""
            settings.problems.append(f"{quoted(path)[1:-1]} = {quoted(value)}{near}")
    if settings.problems:
        raise _refusal(where, settings.problems, refused)
    return rest, scheme, tuple(taken)


def _refusal(where: str, problems: list[str], unknown: list[str]) -> ConfigError:
    count = "1 setting" if len(problems) == 1 else f"{len(problems)} settings"
    advice = "Ignoring a setting could change the answer, so loading stops here."
    if unknown and len(unknown) == len(problems) <= _MOST_SHOWN:
        flags = " ".join(f"--accept-unknown {quoted(path)[1:-1]}" for path in unknown)
        advice += f"\n  {flags}   loads without it and says so in the account"
    more = len(problems) - _MOST_SHOWN
    return ConfigError(
        f"{where}: {count} of the quantization that this version cannot honour",
        *problems[:_MOST_SHOWN],
        *([f"and {more} more"] if more > 0 else []),
        advice=advice,
    )


def _chosen(config: Mapping[str, object], where: str) -> tuple[str, Mapping[str, object]] | None:
    """The object that says how, and its key; MLX writes it under both."""
    given = {key: config[key] for key in KEYS if config.get(key) not in (None, False, {})}
    for key, value in given.items():
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where}: {key} = {quoted(value)}: wanted an object")
    if len(given) == 2 and given[KEYS[0]] != given[KEYS[1]]:
        raise ConfigError(f"{where}: {KEYS[0]} and {KEYS[1]} contradict each other")
    for key in reversed(KEYS):
        value = given.get(key)
        if isinstance(value, Mapping):
            return key, value
    return None


def _method(settings: _Settings, where: str) -> Callable[[_Settings], Scheme]:
    name = settings.get("quant_method")
    read = _METHODS.get(name) if isinstance(name, str) else None
    if read is None:
        said = f"{quoted(name)} cannot be read" if name is not None else "is missing"
        raise ConfigError(
            f"{where}: quantization_config.quant_method {said}",
            f"this version reads {_READABLE}",
        )
    return read


def _read_mlx(settings: _Settings) -> Scheme:
    packing = _mlx(settings)
    overrides: dict[str, Mlx | None] = {}
    for name, value in settings.values.items():
        if isinstance(value, Mapping):
            inner = _Settings({**_inherited(packing), **value}, f"{settings.path}.{name}"[:200])
            overrides[name] = _mlx(inner)
            inner.problems += [f"{inner.path}.{key} is not known" for key in inner.unknown()]
            settings.problems += inner.problems
        elif isinstance(value, bool) and name not in settings.asked:
            overrides[name] = packing if value else None
    settings.pass_over(*overrides)
    return Scheme(packing, overrides, listed=False)


def _inherited(packing: Mlx) -> dict[str, object]:
    return {"bits": packing.bits, "group_size": packing.group}


def _mlx(settings: _Settings) -> Mlx:
    settings.one_of("mode", offered=("affine",), default="affine")
    bits = settings.whole("bits", offered=_MLX_BITS)
    return Mlx(bits, settings.whole("group_size", offered=PACKING_GROUPS))


def _read_awq(settings: _Settings) -> Scheme:
    settings.whole("bits", "w_bit", offered=(4,), default=4)
    settings.one_of("version", "format", "checkpoint_format", offered=("gemm",), default="gemm")
    settings.one_of("zero_point", offered=(True,), default=True)
    _check_words(settings)
    group = settings.whole("group_size", "q_group_size", offered=PACKING_GROUPS, default=128)
    return Scheme(Awq(group), plain=settings.modules("modules_to_not_convert"))


def _read_gptq(settings: _Settings) -> Scheme:
    settings.whole("bits", offered=(4,))
    group = settings.whole("group_size", offered=(*PACKING_GROUPS, -1), default=128)
    ordered = settings.flag("desc_act", False)
    version = settings.one_of(
        "checkpoint_format", "format", offered=("gptq", "gptq_v2"), default="gptq"
    )
    _check_words(settings)
    packing = Gptq(None if group == -1 else group, ordered, 1 if version == "gptq" else 0)
    return Scheme(packing, plain=settings.modules("modules_to_not_convert"))


def _check_words(settings: _Settings) -> None:
    settings.one_of("pack_dtype", offered=("int32",), default="int32")
    settings.flag("lm_head", False)  # its tensors say so too


def _read_fp8(settings: _Settings) -> Scheme:
    settings.one_of("activation_scheme", offered=("dynamic",), default="dynamic")
    settings.one_of("fmt", offered=("e4m3", "e5m2", "float8_e4m3fn", "float8_e5m2"), default="e4m3")
    settings.one_of("scale_fmt", offered=("float", "ue8m0"), default="float")
    tile = _tile(settings, "weight_block_size")
    return Scheme(InverselyNamedF8(tile), plain=settings.modules("modules_to_not_convert"))


def _read_fbgemm(settings: _Settings) -> Scheme:
    return Scheme(ScaledF8((1, 0)), plain=settings.modules("modules_to_not_convert"))


def _tile(settings: _Settings, name: str) -> tuple[int, int]:
    """Rows and columns that share a scale; (0, 0) where all do."""
    value = settings.get(name)
    if value is None:
        return 0, 0
    if (
        not isinstance(value, list)
        or len(value) != 2
        or not all(type(size) is int and 1 <= size <= 1 << 20 for size in value)
    ):
        settings.refuse(name, "wanted rows and columns, for example [128, 128]")
        return 0, 0
    return value[0], value[1]


def _read_compressed(settings: _Settings) -> Scheme:
    """One group of 8-bit float weights, whose activations nothing stored rescales."""
    settings.one_of("format", offered=("float-quantized", "naive-quantized"))
    settings.pass_over("version")
    plain = settings.modules("ignore")
    groups = settings.get("config_groups")
    if not isinstance(groups, Mapping) or len(groups) != 1:
        settings.refuse("config_groups", "this version reads one group")
        return Scheme(ScaledF8((0, 0)), plain=plain)
    ((name, values),) = groups.items()
    if not isinstance(values, Mapping):
        settings.refuse("config_groups", "wanted an object in an object")
        return Scheme(ScaledF8((0, 0)), plain=plain)
    group = _Settings(values, f"{settings.path}.config_groups.{name}"[:200])
    group.pass_over("targets", "format")
    weights, tile = _inner(group, "weights"), (0, 0)
    weights.whole("num_bits", offered=(8,))
    weights.one_of("type", offered=("float",))
    weights.one_of("symmetric", offered=(True,), default=True)
    weights.one_of("dynamic", offered=(False,), default=False)
    weights.pass_over("observer", "observer_kwargs", "group_size", "scale_dtype", "zp_dtype")
    strategy = weights.one_of("strategy", offered=("tensor", "channel", "block"))
    if strategy == "channel":
        tile = 1, 0
    if strategy == "block":
        tile = _tile(weights, "block_structure")
        if tile == (0, 0):
            weights.refuse("block_structure", "wanted rows and columns of a block")
    inputs = _inner(group, "input_activations")
    if inputs.values:
        inputs.one_of("dynamic", offered=(True,))
        inputs.pass_over(*inputs.values)
    for inner in (weights, inputs, group):
        settings.problems += inner.problems
        settings.problems += [f"{inner.path}.{key} is not known" for key in inner.unknown()]
    return Scheme(ScaledF8(tile), plain=plain)


def _inner(settings: _Settings, name: str) -> _Settings:
    value = settings.get(name)
    if value is not None and not isinstance(value, Mapping):
        settings.refuse(name, "wanted an object")
        value = None
    return _Settings(value or {}, f"{settings.path}.{name}")


def _read_mxfp4(settings: _Settings) -> Scheme:
    return Scheme(Mxfp4(), plain=settings.modules("modules_to_not_convert"))


_METHODS: Mapping[str, Callable[[_Settings], Scheme]] = {
    "awq": _read_awq,
    "gptq": _read_gptq,
    "fp8": _read_fp8,
    "fbgemm_fp8": _read_fbgemm,
    "compressed-tensors": _read_compressed,
    "mxfp4": _read_mxfp4,
}
READABLE_METHODS = tuple(_METHODS)
