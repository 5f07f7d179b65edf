"""What users of llama.cpp, vLLM and mlx-lm ask for by their options, and what they get here.

`docs/compared.md` shows the same entries; a test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from string import digits

from forwardpass.errors import RequestError

PAGE = "docs/compared.md"


@dataclass(frozen=True)
class Absent:
    """Something that other programs have: its name, the options that ask for it, the way out."""

    name: str
    options: tuple[str, ...]
    instead: str


def _absent(name: str, options: str, instead: str) -> Absent:
    return Absent(name, tuple(options.split()), instead)


ABSENT: tuple[Absent, ...] = (
    _absent(
        "LoRA adapters",
        "--lora --lora-scaled --enable-lora --lora-modules --adapter-path",
        "merge the adapter into the weights and load the result",
    ),
    _absent(
        "control vectors",
        "--control-vector --control-vector-scaled --control-vector-layer-range",
        "there is no other way to steer a model than its prompt",
    ),
    _absent(
        "images, audio and video",
        "--image --audio --video --mmproj -mm --mmproj-url --limit-mm-per-prompt",
        "the text part of such a model may run; describe the rest in words",
    ),
    _absent(
        "saved sessions of the KV cache",
        "--prompt-cache --prompt-cache-all --prompt-cache-ro --prompt-cache-file "
        "--slot-save-path --enable-prefix-caching",
        "chat's /save keeps the conversation, which is read again when it goes on",
    ),
    _absent(
        "grammars in GBNF",
        "--grammar --grammar-file",
        "run --schema, --regex and --choice hold an answer to a shape, --lark to a grammar",
    ),
    _absent(
        "choices of how calls of tools are read",
        "--tool-call-parser --enable-auto-tool-choice",
        "run --tools tells from the chat template how the model writes calls",
    ),
    _absent(
        "stop strings",
        "--stop --reverse-prompt -r --ignore-eos",
        "an answer ends where the model ends it, or at --max-tokens",
    ),
    _absent(
        "more samplers",
        "--sampling-seq --mirostat --dynatemp-range --num-beams",
        "docs/sampling.md lists the stages that there are",
    ),
    _absent(
        "speculative decoding with a draft model",
        "--draft-model --model-draft -md --draft --draft-max --draft-min --num-draft-tokens "
        "--speculative-config --spec-type --hf-repo-draft -hfd -hfrd",
        "load the one model that shall answer",
    ),
    _absent(
        "embeddings and reranking",
        "--embedding --embeddings --pooling --rerank --reranking --embd-normalize --task",
        "score tells how likely a text is; vectors of texts come from other programs",
    ),
    _absent(
        "GPU offload",
        "-ngl --n-gpu-layers --gpu-layers --split-mode -sm --tensor-split -ts --main-gpu -mg "
        "--device -dev --override-tensor -ot --cpu-moe --n-cpu-moe --gpu-memory-utilization "
        "--cpu-offload-gb",
        "passes run on the processor; plan tells how fast a GPU could be",
    ),
    _absent(
        "several machines or processors",
        "--tensor-parallel-size -tp --pipeline-parallel-size -pp --data-parallel-size --rpc",
        "a model has to fit into the memory of one machine",
    ),
    _absent(
        "NUMA placement and pinned threads",
        "--numa --cpu-mask --cpu-range --cpu-strict --prio --poll",
        "numactl and taskset place the whole program",
    ),
    _absent(
        "choices of how weights are mapped",
        "--mlock --no-mmap --mmap --direct-io -dio --load-format",
        "weights are brought into memory once, as the model is loaded, and stay there",
    ),
    _absent(
        "other settings of rope than the model's own",
        "--rope-scaling --rope-scale --rope-freq-base --rope-freq-scale --yarn-ext-factor "
        "--yarn-orig-ctx --rope-theta",
        "change them in config.json, where count and run both see them",
    ),
    _absent(
        "quantizing",
        "--quantization --quantize -q --q-bits --q-group-size --dtype",
        "load a file that is quantized already; docs/ops.md lists the types with a kernel",
    ),
    _absent(
        "code that comes with a model",
        "--trust-remote-code",
        "nothing that a model brings is run; templates run in a sandbox",
    ),
    _absent(
        "choices of kernels",
        "--flash-attn -fa --attention-backend --enforce-eager --batch-size -b --ubatch-size -ub",
        "every level of instructions computes the same bits; --backend chooses what computes",
    ),
)
"""What there is not, each with the options that ask for it elsewhere."""

ELSEWHERE: dict[str, tuple[str, ...]] = {
    "the first argument": ("-m", "--model", "-hf", "-hfr", "--hf-repo", "-hff", "--hf-file"),
    "the second argument": ("-p", "--prompt"),
    "--max-tokens": ("-n", "--n-predict", "--predict"),
    "--context": ("-c", "--ctx-size", "--max-model-len", "--max-kv-size"),
    "--temperature": ("--temp",),
    "--repetition-penalty": ("--repeat-penalty",),
    "--stages": ("--samplers",),
    "--typical-p": ("--typical",),
    "--top-n-sigma": ("--top-nsigma",),
    "--threads": ("-t", "-tb", "--threads-batch"),
    "--system": ("-sys", "--system-prompt"),
    "--template": ("--chat-template", "--chat-template-file"),
    "--template-arg": ("--chat-template-kwargs", "--chat-template-config"),
    "--thinking": ("--reasoning-budget", "-rea", "--reasoning"),
    "--kv-type": ("-ctk", "--cache-type-k", "-ctv", "--cache-type-v", "--kv-bits",
                  "--kv-cache-dtype"),
    "--schema": ("--json-schema", "-j", "--json-schema-file"),
    "--constraint": ("--guided-decoding-backend",),
    "--pre": ("--override-kv", "--tokenizer"),
    "forwardpass chat": ("-cnv", "--conversation"),
    "forwardpass run": ("-no-cnv", "--no-conversation", "-st", "--single-turn"),
    "forwardpass score": ("--perplexity", "--ppl-stride"),
}  # fmt: skip
"""What there is under another name."""


def joined(arguments: Iterable[str], with_value: Collection[str]) -> Iterator[str]:
    """The options of one dash and several letters among `arguments`, as they were typed.

    A parser takes `-hf` for `-h` and `-f`. What follows one of the options `with_value` is no
    option.
    """
    is_value = False
    for argument in arguments:
        if argument == "--":
            return
        if _is_short(argument) and len(argument) > 2 and not is_value:
            yield argument
        is_value = not is_value and argument in with_value


def _is_short(argument: str) -> bool:
    return argument.startswith("-") and not argument.startswith("--")


def absent(arguments: Iterable[str]) -> RequestError | None:
    """The error for the first option among `arguments` that another program has, or None."""
    missing = {option: entry for entry in ABSENT for option in entry.options}
    renamed = {option: name for name, options in ELSEWHERE.items() for option in options}
    for argument in arguments:
        if argument == "--":
            break
        option = argument.partition("=")[0]
        if _is_short(option) and option not in {**missing, **renamed}:
            option = option.rstrip(digits)  # a number may be joined to it: -ngl99
        if option in missing:
            entry = missing[option]
            return RequestError(
                f"{option}: {entry.name}: this version does not have that",
                entry.instead,
                advice=f"{PAGE} lists what other programs have and this one has not",
            )
        if option in renamed:
            return RequestError(f"{option} is called {renamed[option]} here")
    return None
