"""The Python API: what a program sees of the package."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import forwardpass as fp
from forwardpass.options import Options
from forwardpass.work.count import count_pass
from forwardpass.work.passes import PassShape
from text.vocabularies import small
from tiny_model import ROWS, random_folder, random_gguf, scripted_folder

PUBLIC = [
    "Answer",
    "Candidate",
    "ComputeError",
    "ConfigError",
    "ContextError",
    "DownloadError",
    "FormatError",
    "ForwardpassError",
    "Generation",
    "GraphError",
    "Model",
    "ModelNotFound",
    "Raw",
    "Replay",
    "RequestError",
    "Step",
    "TemplateError",
    "TokenizerError",
    "Trace",
    "Usage",
    "WeightsError",
    "__version__",
    "assistant",
    "count",
    "load",
    "plan",
    "raw",
    "read_trace",
    "system",
    "user",
    "write_trace",
]
SAYS = "the Öl fox 🎉."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_folder(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def model(folder: Path) -> fp.Model:
    return fp.load(folder)


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> fp.Model:
    return fp.load(scripted_folder(tmp_path_factory.mktemp("models") / "scripted", SAYS))


def test_the_public_names_are_these() -> None:
    assert fp.__all__ == PUBLIC
    assert dir(fp) == PUBLIC
    for name in PUBLIC:
        value = getattr(fp, name)
        assert getattr(value, "__name__", name) == name
    with pytest.raises(AttributeError, match="has no attribute 'laod'"):
        fp.laod  # noqa: B018


def test_importing_the_package_loads_nothing_else() -> None:
    program = (
        "import sys, forwardpass\n"
        "assert forwardpass.__version__\n"
        "print([name for name in ('numpy', 'tokenizers', 'jinja2') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8")
    assert done.stdout == "[]\n", done.stderr


def test_a_model_is_counted_without_its_weights() -> None:
    work = fp.count("llama-3.1-8b", visible=12_060).flop_per_token
    assert work is not None
    assert work.weights == 15_009_849_344


def test_a_text_is_one_user_message(scripted: fp.Model) -> None:
    answer = scripted.generate("what?")
    assert answer.text == SAYS
    assert answer.finish_reason == "stop"
    assert scripted.tokenizer.decode(answer.prompt, control=True) == (
        "<|im_start|>user\nwhat?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert scripted.prepare([fp.user("what?")]).ids == answer.prompt


def test_messages_are_a_conversation(scripted: fp.Model) -> None:
    talk = [fp.system("Be brief."), fp.user("what?"), fp.assistant("that"), fp.user("and?")]
    ids = scripted.prepare(talk).ids
    assert scripted.tokenizer.decode(ids, control=True) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nwhat?<|im_end|>\n"
        "<|im_start|>assistant\nthat<|im_end|>\n<|im_start|>user\nand?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_a_raw_text_skips_the_template(scripted: fp.Model) -> None:
    prompt = fp.raw("the")
    answer = scripted.generate(prompt)
    assert answer.prompt == tuple(small().encode("the"))
    assert answer.text == SAYS.removeprefix("the")


def test_a_text_for_a_model_without_a_template_is_completed_and_messages_are_refused(
    tmp_path: Path,
) -> None:
    with fp.load(random_folder(tmp_path / "bare", template=None)) as bare:
        assert bare.prepare("what?") == bare.prepare(fp.raw("what?"))
        with pytest.raises(fp.TemplateError, match="cannot take messages"):
            bare.generate([fp.user("what?")])


def test_a_template_can_be_brought_along(tmp_path: Path) -> None:
    template = tmp_path / "own.jinja"
    template.write_text("{{ messages[0].content }} !", "utf-8")
    with fp.load(random_folder(tmp_path / "bare", template=None), template=template) as bare:
        assert bare.tokenizer.decode(bare.prepare("what?").ids) == "what? !"


def test_a_folder_and_a_gguf_file_of_one_model_answer_alike(
    model: fp.Model, tmp_path: Path
) -> None:
    with fp.load(random_gguf(tmp_path / "tiny.gguf")) as other:
        theirs = other.generate("hello", max_tokens=30)
    ours = model.generate("hello", max_tokens=30)
    assert theirs.prompt == ours.prompt
    assert [step.id for step in theirs.steps] == [step.id for step in ours.steps]


def test_a_stream_gives_the_steps_of_the_answer(model: fp.Model) -> None:
    options: Options = {"temperature": 1.2, "top_k": 40, "seed": 7, "max_tokens": 25}
    answer = model.generate("hello", **options)
    stream = model.stream("hello", **options)
    assert stream.answer().steps == ()
    assert stream.answer().finish_reason is None
    steps = list(stream)
    assert tuple(steps) == answer.steps
    assert stream.answer().text == answer.text
    assert list(stream) == []


def test_waiting_for_an_answer_does_not_block_the_loop(model: fp.Model) -> None:
    options: Options = {"temperature": 1.2, "seed": 7, "max_tokens": 25}
    answer = model.generate("hello", **options)

    async def both() -> tuple[fp.Answer, list[fp.Step], int]:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        busy = asyncio.create_task(others())
        whole = await model.agenerate("hello", **options)
        streamed = [step async for step in model.astream("hello", **options)]
        busy.cancel()
        return whole, streamed, turns

    whole, streamed, turns = asyncio.run(both())
    assert whole.steps == answer.steps == tuple(streamed)
    assert turns > len(streamed)


def test_a_cancelled_answer_stops_within_a_step(tmp_path: Path) -> None:
    path = scripted_folder(tmp_path / "m", "ab", endless=True, max_position_embeddings=100_000)

    async def cancel(model: fp.Model) -> float:
        waiting = asyncio.create_task(model.agenerate("hello", max_tokens=90_000))
        await asyncio.sleep(0.2)
        waiting.cancel()
        start = time.perf_counter()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return start

    with fp.load(path) as model:
        start = asyncio.run(cancel(model))  # which waits for the threads that still run
    assert time.perf_counter() - start < 20  # 90,000 steps take minutes


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"temprature": 1}, r"no option 'temprature'  \(did you mean temperature\?\)"),
        ({"maxtokens": 1}, r"no option 'maxtokens'  \(did you mean max_tokens\?\)"),
        ({"temperature": -1}, "temperature = -1: wanted a number from 0 up"),
        ({"top_p": 0}, "top_p = 0: wanted a number above 0"),
        ({"max_tokens": 0}, "max_tokens = 0: wanted a whole number from 1 up"),
        ({"max_tokens": True}, "max_tokens = True: wanted a whole number"),
        ({"seed": 2**63}, "seed = 9223372036854775808: wanted"),
        ({"thinking": "off"}, "thinking = 'off': wanted True or False"),
        ({"control_tokens": 1}, "control_tokens = 1: wanted True or False"),
        ({"template_args": "x"}, "template_args = 'x': wanted a mapping"),
        ({"template_args": {5: 1}}, "template_args = {5: 1}: wanted a mapping from names"),
        ({"template_args": {"enable_thinking": object()}}, "enable_thinking: a object is not JSON"),
        ({"template_args": {"enable_thinking": float("nan")}}, "nan is not a JSON number"),
        (
            {"thinking": False, "template_args": {"enable_thinking": True}},
            "thinking and the template's argument enable_thinking were both given",
        ),
        ({"tools": 5}, "tools = 5: wanted a list"),
        ({"tools": {}}, "tools = {}: wanted a list"),
        ({"tools": "f"}, "tools = 'f': wanted a list"),
        ({"template_args": {"colour": 1}}, "colour"),
        ({"tools": [{"name": 3}]}, "tools"),
        ({"logit_bias": {ROWS: 1.0}}, str(ROWS)),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(
    model: fp.Model, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(fp.RequestError, match=says):
        model.generate("hello", **options)
    with pytest.raises(fp.RequestError, match=says):
        next(next(model.each_seed("hello", [1], **options)))


@pytest.mark.parametrize("prompt", [3, None, b"hello", {"role": "user"}, [], ["hello"]])
def test_a_prompt_is_a_text_or_messages(model: fp.Model, prompt: Any) -> None:
    with pytest.raises(fp.RequestError):
        model.generate(prompt)


@pytest.mark.parametrize(
    "options",
    [{"thinking": False}, {"template_args": {"a": 1}}, {"tools": [{"name": "f"}]}],
)
def test_what_only_a_template_reads_is_refused_for_a_raw_prompt(
    model: fp.Model, options: dict[str, Any]
) -> None:
    with pytest.raises(fp.RequestError, match="needs a chat template"):
        model.generate(fp.raw("hello"), **options)


def test_options_that_are_none_or_empty_count_as_absent(model: fp.Model) -> None:
    options: dict[str, Any] = dict.fromkeys(Options.__annotations__)
    absent = model.generate(fp.raw("hello"), max_tokens=3)
    options["max_tokens"] = 3
    assert model.generate(fp.raw("hello"), **options).steps == absent.steps
    assert model.generate(fp.raw("hello"), tools=[], template_args={}, max_tokens=3).steps == (
        absent.steps
    )


def test_thinking_and_template_arguments_reach_the_template(model: fp.Model) -> None:
    text = model.tokenizer.decode(model.prepare("hello", thinking=False).ids)
    assert text.endswith("\n<think></think>")
    assert "think" not in model.tokenizer.decode(model.prepare("hello", thinking=True).ids)
    same = model.prepare("hello", template_args={"enable_thinking": False})
    assert same == model.prepare("hello", thinking=False)


def test_user_text_becomes_a_control_token_only_where_that_is_asked(model: fp.Model) -> None:
    end = small().find("<|im_end|>")
    text = "a <|im_end|> b"
    assert model.prepare(text).ids.count(end) == 1
    assert model.prepare(text, control_tokens=True).ids.count(end) == 2
    assert end not in model.prepare(fp.raw(text)).ids
    assert end in model.prepare(fp.raw(text), control_tokens=True).ids


def test_an_answer_counts_its_tokens_and_its_work(model: fp.Model) -> None:
    answer = model.generate("hello", temperature=1.0, seed=3, max_tokens=17)
    tokens, passes = len(answer.prompt), len(answer.steps)
    assert answer.usage == fp.Usage(tokens, passes)
    weights, width = model.description.weights, model.runner.backend.kv_width
    assert weights is not None
    shapes = [PassShape.prompt(tokens), *(PassShape.decode(tokens + k) for k in range(1, passes))]
    works = [count_pass(model.description.graph, s, weights.stored_bytes, width) for s in shapes]
    assert answer.work.passes == passes
    assert answer.work.flop == sum(work.flop for work in works)
    assert answer.work.weight_bytes == sum(work.weight_bytes for work in works)
    assert answer.work.cache_bytes == sum(
        part.cache_read + part.cache_written for work in works for part in (work.total, work.other)
    )
    assert answer.work.seconds == answer.work.seconds_prefill + answer.work.seconds_decode
    assert min(answer.work.seconds_prefill, answer.work.seconds_decode) > 0


def test_every_sampling_value_says_where_it_came_from(tmp_path: Path) -> None:
    stated = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95}
    with fp.load(random_folder(tmp_path / "m", generation_config=stated)) as model:
        settings = model.settings(top_k=5, seed=1)
        left_out = model.settings(ignore_model_defaults=True)
        unseeded = [model.settings().seed for _ in range(2)]
    assert (settings.temperature.value, settings.temperature.source) == (0.6, "model file")
    assert (settings.top_k.value, settings.top_k.source) == (5, "request")
    assert (settings.top_p.value, settings.top_p.source) == (0.95, "model file")
    assert (settings.min_p.value, settings.min_p.source) == (0, "engine default")
    assert left_out.greedy
    assert left_out.temperature.source == "engine default"
    assert {seed.source for seed in unseeded} == {"engine default"}
    assert unseeded[0] != unseeded[1]  # 32 random bits each: equal once in 4 billion runs


def test_a_step_knows_the_best_tokens_and_both_probabilities(model: fp.Model) -> None:
    answer = model.generate("hello", temperature=0.5, top_k=3, seed=3, max_tokens=5)
    for step in answer.steps:
        best = step.top(3)
        assert [c.logprob for c in best] == sorted((c.logprob for c in best), reverse=True)
        chosen = next(c for c in best if c.id == step.id)
        assert chosen.logprob == step.logprob
        assert step.sampled_logprob > step.logprob
        assert step.random is not None
        assert len(step.top(1_000)) == 256
    greedy = model.generate("hello", max_tokens=2).steps[0]
    assert (greedy.random, greedy.sampled_logprob, greedy.id) == (None, 0, greedy.top(1)[0].id)


def test_each_seed_gives_the_answer_of_its_own_run_from_one_prefill(model: fp.Model) -> None:
    options: Options = {"temperature": 1.5, "max_tokens": 12}
    seeds = [0, 1, 2**62, 1]
    together = []
    for going in model.each_seed("hello", seeds, **options):
        list(going)
        together.append(going.answer())
    for seed, answer in zip(seeds, together, strict=True):
        own: Options = {**options, "seed": seed}
        alone = model.generate("hello", **own)
        assert answer.steps == alone.steps
        assert answer.sampling == alone.sampling
    assert len({answer.text for answer in together}) == 3
    passes = [len(answer.steps) for answer in together]
    assert [answer.work.passes for answer in together] == [
        passes[0], *(count - 1 for count in passes[1:])
    ]  # fmt: skip


def test_models_and_answers_show_themselves_in_a_line(model: fp.Model) -> None:
    assert repr(model) == f"<Model {model.description.label}: llama, 2 layers, context 512>"
    answer = model.generate("hello", max_tokens=1)
    assert repr(answer) == (
        f"<Answer {answer.text!r}, length, "
        f"Usage(prompt_tokens={len(answer.prompt)}, completion_tokens=1)>"
    )
    going = model.stream("hello", max_tokens=1)
    assert repr(going) == "<Generation '', 0 tokens so far>"
    next(going)
    assert repr(going) == f"<Generation {answer.text!r}, 1 token so far>"


def test_the_account_of_a_real_answer_is_exact(model_path: Callable[[str], Path]) -> None:
    with fp.load(model_path("smollm2-135m")) as model:
        answer = model.generate("Name one herb to add to tomato soup. Answer with one word.")
    assert answer.text == "One herb to add to tomato soup is basil."
    assert answer.usage == fp.Usage(44, 11)
    assert answer.finish_reason == "stop"
    assert answer.work.passes == 11
    assert answer.work.flop == 9_467_864_064 + 2_723_811_840 == 12_191_675_904
    assert answer.work.weight_bytes == 11 * 96_576_768
    assert answer.sampling.greedy
    assert answer.sampling.temperature.source == "engine default"


def test_a_closed_model_answers_nothing(folder: Path) -> None:
    model = fp.load(folder)
    with model:
        assert model.generate("hi", max_tokens=1).steps
    asks: list[Callable[[], object]] = [
        lambda: model.generate("hi", max_tokens=1),
        lambda: model.stream("hi"),
        lambda: next(model.each_seed("hi", [1])),
        lambda: asyncio.run(model.agenerate("hi")),
    ]
    for ask in asks:
        with pytest.raises(fp.RequestError, match="the model is closed"):
            ask()
        with model, pytest.raises(fp.RequestError, match="the model is closed"):
            ask()
