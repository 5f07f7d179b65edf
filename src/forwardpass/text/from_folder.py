"""A tokenizer from a Hugging Face folder.

`tokenizer.json` is read, checked part by part and rebuilt without its control tokens;
`tokenizer_config.json` and `special_tokens_map.json` name the special ones. A folder that holds
only `vocab.json` and `merges.txt` is the byte-level BPE of GPT-2.

Whether a prompt begins with BOS is what the post-processor of `tokenizer.json` says, and nothing
else: `add_bos_token` of the config counts only where there is no `tokenizer.json`.
Source: transformers 5.24, tokenization_utils_base.py, `_from_pretrained`, for every class.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from forwardpass.errors import TokenizerError
from forwardpass.text.library import faults_are_tokenizer_errors
from forwardpass.text.tokenizer import Tokenizer
from forwardpass.text.tokenizer_json import TokenizerJson
from forwardpass.text.vocabulary import ControlToken, Vocabulary

_MAX_BYTES = 1 << 28
_ROLES = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)


def from_folder(folder: Path, *, eos_ids: Iterable[int] = ()) -> Tokenizer:
    """The tokenizer of a folder. `eos_ids`: what `generation_config.json` and `config.json` say.

    Those may lie beyond the tokenizer's own ids, where the model's table has rows without a token.
    Errors: TokenizerError naming file and place.
    """
    path = folder / "tokenizer.json"
    config = _optional(folder / "tokenizer_config.json")
    named = _named_tokens(config, _optional(folder / "special_tokens_map.json"))
    add_bos = False
    if path.is_file():
        data = read_json(path)
    elif (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        data = _gpt2_files(folder)
        add_bos = _flag(config, "add_bos_token")
    else:
        held = "; tokenizer.model alone is not read" if _holds_model(folder) else ""
        raise TokenizerError(f"{folder.name}: there is no tokenizer.json{held}")
    name = f"{folder.name}/{path.name}"
    return from_json(data, config, named, name=name, eos_ids=eos_ids, add_bos=add_bos)


def _flag(config: Mapping[str, Any], key: str) -> bool:
    value = config.get(key)
    if not isinstance(value, bool | None):
        raise TokenizerError(f"tokenizer_config.json: {key} = {value!r:.40} is not true or false")
    return bool(value)


def _holds_model(folder: Path) -> bool:
    return (folder / "tokenizer.model").exists()


def from_json(
    data: Mapping[str, Any],
    config: Mapping[str, Any],
    named: Mapping[str, str],
    *,
    name: str,
    eos_ids: Iterable[int] = (),
    add_bos: bool = False,
) -> Tokenizer:
    """The tokenizer of a parsed `tokenizer.json`, its config, and its special tokens by role.

    A prompt begins with the token that the post-processor puts there, whatever other token the
    config calls BOS; `add_bos` begins it with that one where there is no post-processor for it.
    """
    parsed = TokenizerJson(data, name, _config_tokens(config, name), frozenset(named.values()))
    with faults_are_tokenizer_errors(name):
        libraries = parsed.libraries()
    eos = parsed.find(named.get("eos_token"))
    begin = parsed.begin()
    bos = parsed.find(named.get("bos_token")) if begin is None else begin
    vocabulary = Vocabulary(
        texts=parsed.texts(),
        byte_level=parsed.byte_level,
        control=tuple(
            ControlToken(token.id, token.text, token.lstrip, token.rstrip, token.single_word)
            for token in parsed.control
        ),
        literal=parsed.literal,
        byte_ids=parsed.byte_ids(),
        bos_id=bos,
        eos_ids=tuple(dict.fromkeys([*([] if eos is None else [eos]), *eos_ids])),
        unknown_id=parsed.unknown_id,
        add_bos=begin is not None or add_bos,
        special_tokens=dict(named),
    )
    return Tokenizer(vocabulary, libraries, name=name, encode_all=parsed.encode_all())


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; a TokenizerError where it is none or too large."""
    size = path.stat().st_size
    if size > _MAX_BYTES:
        raise TokenizerError(f"{path.name}: {size:,} bytes, more than the {_MAX_BYTES:,} allowed")
    try:
        data = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{path.name}: not JSON: {error}"[:300]) from None
    if not isinstance(data, dict):
        raise TokenizerError(f"{path.name}: not a JSON object")
    return data


def _optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _gpt2_files(folder: Path) -> dict[str, Any]:
    vocab = read_json(folder / "vocab.json")
    try:
        lines = (folder / "merges.txt").read_text("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise TokenizerError(f"merges.txt: not UTF-8 at byte {error.start:,}") from None
    merges = [line for line in lines if line and not line.startswith("#version")]
    return {
        "added_tokens": [],
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": False,
            "use_regex": True,
        },
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
    }


def _named_tokens(*sources: Mapping[str, Any]) -> dict[str, str]:
    """The special tokens by role; the first source that names one wins."""
    named: dict[str, str] = {}
    for source in sources:
        for role in _ROLES:
            value = source.get(role)
            if isinstance(value, dict):
                value = value.get("content")
            if isinstance(value, str) and value:
                named.setdefault(role, value)
    return named


def _config_tokens(config: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """`added_tokens_decoder` of the config, in the shape of `tokenizer.json`'s added tokens."""
    table = config.get("added_tokens_decoder")
    if table is None:
        return []
    if not isinstance(table, dict):
        raise TokenizerError(f"{name}: added_tokens_decoder of the config is not an object")
    found = []
    for key, token in table.items():
        if not isinstance(token, dict) or not key.isdecimal() or len(key) > 9:
            raise TokenizerError(f"{name}: added_tokens_decoder[{key!r:.40}] is not a token")
        found.append({**token, "id": int(key)})
    return found
