r"""How each named byte-level vocabulary cuts text before its merges run.

A GGUF file names the rule (`tokenizer.ggml.pre`) and does not carry it, so the rules are kept
here, one entry for each way to cut and one name or more for each entry. Patterns are in the
syntax of Oniguruma; each is applied in turn, and every match is cut out alone.

Sources: which name stands for which rule, and the names whose words are taken whole, are those of
llama.cpp (src/llama-vocab.cpp at 00ad355). The patterns are those of the `tokenizer.json` files
that the vocabularies were published with, where llama.cpp spells them another way for its own
matcher (`(?i:'s)` as `'[sS]`, `\s+` left out at the end) or leaves a normalizer out. Three rules
are written so that they cut the same with less work, which a test holds: digits alone and then
GPT-2's pattern in one pattern, and DeepSeek's two, where each line feed alone comes last.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from forwardpass.errors import RequestError, TokenizerError, did_you_mean

_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"

_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = _ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _BLANKS
# \p{N} alone, then GPT-2's pattern between: blanks before a digit stay together.
_DIGITS_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+"
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_QWEN35 = (
    _ENDINGS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + _BLANKS
)

# Words of the patterns of GPT-4o: capitals first, small letters last.
_FIRST = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LAST = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def _capitals(ending: str, digits: str) -> str:
    """The pattern of GPT-4o with what may end a word and how long a number may be."""
    words = (f"{_FIRST}*{_LAST}+", f"{_FIRST}+{_LAST}*")
    cut = "".join(rf"[^\r\n\p{{L}}\p{{N}}]?{word}{ending}|" for word in words)
    return cut + rf"{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|" + _BLANKS


_BLANK = r"[^\S\r\n]"  # within a line
_CJK = r"[\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+"
_HAN_KANA = r"[\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+"
# The letters with a case of Unicode 11, but for some of Armenian, Georgian and Latin.
_CASED = """
41-5a 61-7a b5 c0-d6 d8-f6 f8-1ba 1bc-1bf 1c4-293 295-2af 370-373 376-377 37b-37d 37f 386
388-38a 38c 38e-3a1 3a3-3f5 3f7-481 48a-52f 531-556 10a0-10c5 13a0-13f5 13f8-13fd 1c90-1cba
1cbd-1cbf 1d00-1d2b 1d6b-1d77 1d79-1d9a 1e00-1f15 1f18-1f1d 1f20-1f45 1f48-1f4d 1f50-1f57 1f59
1f5b 1f5d 1f5f-1f7d 1f80-1fb4 1fb6-1fbc 1fbe 1fc2-1fc4 1fc6-1fcc 1fd0-1fd3 1fd6-1fdb 1fe0-1fec
1ff2-1ff4 1ff6-1ffc 2102 2107 210a-2113 2115 2119-211d 2124 2126 2128 212a-212d 212f-2134 2139
213c-213f 2145-2149 214e 2183-2184 2c00-2c7b 2c7e-2ce4 2ceb-2cee 2cf2-2cf3 a640-a66d a680-a69b
a722-a76f a771-a787 a78b-a78e ab70-abbf fb00-fb06 fb13-fb17 ff21-ff3a ff41-ff5a 10400-1044f
104b0-104d3 104d8-104fb 10c80-10cb2 10cc0-10cf2 118a0-118df 1e900-1e943
"""


def _class(ranges: str) -> str:
    """A character class out of code points in hexadecimal."""
    parts = ("-".join(rf"\x{{{end}}}" for end in part.split("-")) for part in ranges.split())
    return f"[{''.join(parts)}]"


_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    _HAN_KANA,
    r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
    + _BLANKS,
)
_FALCON_MARKS = r"[\p{P}$+<=>^`|~]+"


@dataclass(frozen=True)
class PreTokenizer:
    """One rule: patterns in order, and what else the vocabulary's own files say.

    `lone_line_ends`: then each line feed and carriage return is cut out alone. `byte_patterns` are
    applied after the text was written in the byte alphabet. `nfc`: text is put into normal form C
    first. `whole_words`: a piece that is a token as it stands is taken without merging. `add_bos`:
    raw text begins with BOS where the file is silent.
    """

    patterns: tuple[str, ...]
    lone_line_ends: bool = False
    byte_patterns: tuple[str, ...] = ()
    nfc: bool = False
    whole_words: bool = False
    add_bos: bool = False


_PLAIN = PreTokenizer((_GPT2,))
_DIGITS = PreTokenizer((_DIGITS_GPT2,))
_SHORT_NUMBERS = PreTokenizer((_LLAMA3,))
_LLAMA = replace(_SHORT_NUMBERS, whole_words=True, add_bos=True)
_ONE_DIGIT = PreTokenizer((_QWEN2,))
_SEEK3 = PreTokenizer(_DEEPSEEK3)
_FOUR_O = PreTokenizer((_capitals(_ENDINGS + "?", r"\p{N}{1,3}"),))
_BLOOM = r" ?[^(\s|.,!?\x{2026}\x{3002}\x{ff0c}\x{3001}\x{964}\x{6d4}\x{60c})]+"

_NAMES: tuple[tuple[str, PreTokenizer], ...] = (
    (
        "gpt-2 phi-2 jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code roberta-bpe "
        "gigachat a.x-4.0 mellum modern-bert jais trillion granite-docling exaone4",
        _PLAIN,
    ),
    ("mpt olmo", replace(_PLAIN, nfc=True)),
    ("starcoder refact smollm codeshell exaone minerva-7b mellum2", _DIGITS),
    ("command-r", replace(_DIGITS, nfc=True)),
    ("llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano", _LLAMA),
    ("dbrx smaug-bpe glm4 chatglm-bpe", _SHORT_NUMBERS),
    ("qwen2 stablelm2 deepseek-r1-qwen kormo f2llmv2 megrez", replace(_ONE_DIGIT, nfc=True)),
    ("hunyuan solar-open grok-2", _ONE_DIGIT),
    ("qwen35", PreTokenizer((_QWEN35,), nfc=True)),
    ("ufakzeka", PreTokenizer((_QWEN2.removeprefix(_ENDINGS + "|"),))),
    ("laguna", PreTokenizer((r"[^\n]+|\n+", _QWEN2))),
    (
        "minicpm5",
        PreTokenizer((r"\p{N}{1,3}", _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}+")), whole_words=True),
    ),
    (
        "deepseek-llm",
        PreTokenizer(
            (
                rf"{_BLANK}?{_class(_CASED)}+",
                rf"{_BLANK}?{_class('21-2f 3a-7e ff01-ff0f ff1a-ff5e 2018-201f 3000-3002')}+",
                rf"(?<!{_BLANK}){_BLANK}++(?![^\r\n])",
                _CJK,
                r"\p{N}",
            ),
            lone_line_ends=True,
        ),
    ),
    (
        "deepseek-coder",
        PreTokenizer(
            (rf"{_BLANK}?\p{{L}}+", rf"{_BLANK}?\p{{P}}+", _CJK, r"\p{N}"), lone_line_ends=True
        ),
    ),
    ("deepseek-v3 hunyuan-dense joyai-llm hy_v4", _SEEK3),
    ("falcon", PreTokenizer((_FALCON_MARKS, _GPT2), byte_patterns=(r"\p{N}+", "[0-9]{3}"))),
    ("default", PreTokenizer((r"[\p{P}$+<=>^|~]+", _GPT2, r"\p{N}+", "[0-9]{3}"))),
    ("gpt-4o llama4 kanana2 talkie minimax-m2", _FOUR_O),
    ("tekken", PreTokenizer((_capitals("", r"\p{N}"),), whole_words=True, add_bos=True)),
    ("bloom poro-chat gpt3-finnish", PreTokenizer((_BLOOM,))),
    ("viking", PreTokenizer((_BLOOM, r"\p{N}"))),
    (
        "bailingmoe bailingmoe2 llada-moe",
        PreTokenizer(
            (
                r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|"
                r"\s*[\r\n]|\s+(?!\S)|\s+",
            )
        ),
    ),
    (
        "seed-coder",
        PreTokenizer(
            (_ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|" + _BLANKS,)
        ),
    ),
)

PRE_TOKENIZERS: Mapping[str, PreTokenizer] = MappingProxyType(
    {name: rule for names, rule in _NAMES for name in names.split()}
)


def pre_tokenizer(name: str | None, *, where: str, asked: str | None = None) -> PreTokenizer:
    """The rule that was asked for, or else that of the file's `name`.

    Errors, with the names that exist: RequestError where there is none as was asked for,
    TokenizerError where there is none of the file's name.
    """
    rule = PRE_TOKENIZERS.get(asked or name or "")
    if rule is not None:
        return rule
    known = textwrap.wrap(f"known: {', '.join(sorted(PRE_TOKENIZERS))}", 94, break_on_hyphens=False)
    if asked is not None:
        near = did_you_mean(asked, PRE_TOKENIZERS)
        raise RequestError(f"--pre {asked!r:.60} is not a rule of this version{near}", *known)
    if name is None:
        fact = f"{where}: the file does not say how text is cut (tokenizer.ggml.pre is missing)"
    else:
        near = did_you_mean(name, PRE_TOKENIZERS)
        fact = f"{where}: tokenizer.ggml.pre = {name!r:.60} is not a rule of this version{near}"
    raise TokenizerError(
        fact,
        *known,
        advice="--pre NAME loads it with the rule of that name, if you know that it fits",
    )
