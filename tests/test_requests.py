"""What a program asks wrongly is refused by name, whatever its type."""

from __future__ import annotations

from typing import Any

import pytest

import forwardpass as fp
from tiny_model import random_folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> fp.Model:
    return fp.load(random_folder(tmp_path_factory.mktemp("models") / "tiny"))


@pytest.mark.parametrize("text", [None, 5, b"hello"])
def test_a_raw_prompt_is_a_text(text: Any) -> None:
    with pytest.raises(fp.RequestError, match=r"raw\(.*\): wanted a text"):
        fp.raw(text)


def test_a_prompt_of_nothing_is_refused(model: fp.Model) -> None:
    for prompt in ("", fp.raw("")):
        with pytest.raises(fp.RequestError, match="the prompt is empty"):
            model.generate(prompt)
    with pytest.raises(fp.RequestError, match=r"the prompt is empty\n.*raw"):
        model.generate(" \n")
    assert len(model.prepare(fp.raw(" \n")).ids) > 0


@pytest.mark.parametrize("seeds", [5, "12", None])
def test_seeds_are_whole_numbers(model: fp.Model, seeds: Any) -> None:
    with pytest.raises(fp.RequestError, match="seeds = "):
        next(model.each_seed("hello", seeds))


@pytest.mark.parametrize("count", [-1, True, 1.5, None])
def test_the_best_tokens_are_a_whole_number_of_them(model: fp.Model, count: Any) -> None:
    step = model.generate("hello", max_tokens=1).steps[0]
    assert step.top(0) == ()
    with pytest.raises(fp.RequestError, match=r"top\(.*\): wanted a whole number from 0 up"):
        step.top(count)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"visible": "12"}, "visible = '12': wanted"),
        ({"visible": 1.5}, "visible = 1.5: wanted"),
        ({"visible": True}, "visible = True: wanted"),
        ({"visible": [1.5]}, "visible = 1.5: wanted"),
        ({"prompt": 5.0}, "prompt = 5.0: wanted"),
        ({"prompt": 5, "answer": "1"}, "answer = '1': wanted"),
        ({"dtype": 5}, 'no type of weights "5"'),
        ({"dtype": []}, "no type of weights"),
        ({"kv_type": []}, "no type of a KV cache"),
        ({"accept_unknown": "x"}, "accept_unknown = 'x': wanted a list"),
    ],
)
def test_what_cannot_be_counted_is_refused_by_name(options: dict[str, Any], says: str) -> None:
    with pytest.raises(fp.RequestError, match=says):
        fp.count("gpt2", **options)


@pytest.mark.parametrize("reference", [b"gpt2", 5, None, ["gpt2"]])
def test_a_model_is_named_by_a_text_or_a_path(reference: Any) -> None:
    for use in (fp.load, fp.count):
        with pytest.raises(fp.RequestError, match=r"reference = .*: wanted a text or a path"):
            use(reference)
