"""How each named byte-level vocabulary cuts text before its merges run.

A GGUF file names the rule (`tokenizer.ggml.pre`) and does not carry it, so the rules are kept
here, one entry a name. The patterns are those of the `tokenizer.json` files that the
vocabularies were published with; each is applied in turn, and every match is cut out alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from forwardpass.errors import TokenizerError, did_you_mean

_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


@dataclass(frozen=True)
class PreTokenizer:
    """One rule: patterns in order, and what else the vocabulary's own files say.

    `nfc`: text is put into normal form C first. `whole_words`: a piece that is a token as it
    stands is taken without merging. `add_bos`: raw text begins with BOS where the file is silent.
    """

    patterns: tuple[str, ...]
    nfc: bool = False
    whole_words: bool = False
    add_bos: bool = False


PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "gpt-2": PreTokenizer((_GPT2,)),
    "llama-bpe": PreTokenizer((_LLAMA3,), whole_words=True, add_bos=True),
    "qwen2": PreTokenizer((_QWEN2,), nfc=True),
    "smollm": PreTokenizer((r"\p{N}", _GPT2)),
}


def pre_tokenizer(name: str | None, *, where: str) -> PreTokenizer:
    """The rule of that name; a TokenizerError with the names that exist where there is none."""
    if name in PRE_TOKENIZERS:
        return PRE_TOKENIZERS[name]
    known = ", ".join(PRE_TOKENIZERS)
    if name is None:
        fact = f"{where}: the file does not say how text is cut (tokenizer.ggml.pre is missing)"
    else:
        near = did_you_mean(name, PRE_TOKENIZERS)
        fact = f"{where}: tokenizer.ggml.pre = {name!r} is not a rule of this version{near}"
    raise TokenizerError(
        fact,
        f"known: {known}",
        advice="--pre NAME loads it with the rule of that name, if you know that it fits",
    )
