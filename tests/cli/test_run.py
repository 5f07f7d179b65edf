from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import forwardpass as fp
from cli.conftest import ODD_HEADS, SAYS, WITHOUT_NATIVE
from cli.running import Run
from forwardpass.model import Generation
from forwardpass.sampling.ranges import ENGINE_DEFAULTS
from forwardpass.sampling.rules import STAGES
from forwardpass.trace.step import Step
from text.vocabularies import small
from tiny_model import END, ROWS, TOKENS, random_folder

NUMPY = r"reference backend \(NumPy\)"
SOURCES = ["request", "model file", "engine default"]
NUMBER = {"type": "number"}
COUNT = {"type": "integer", "minimum": 0}


def closed(**properties: object) -> dict[str, object]:
    """An object with these keys and no other."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


PLAIN: dict[str, object] = {
    "text": {"type": "string"},
    "finish_reason": {"enum": ["stop", "length", None]},
    "usage": closed(prompt_tokens=COUNT, completion_tokens=COUNT),
    "work": closed(
        passes=COUNT,
        flop=COUNT,
        weight_bytes=COUNT,
        cache_bytes=COUNT,
        seconds=NUMBER,
        seconds_prefill=NUMBER,
        seconds_decode=NUMBER,
    ),
    "sampling": closed(
        **{name: closed(value={}, source={"enum": SOURCES}) for name in ENGINE_DEFAULTS}
    ),
}
WRITTEN = {"id": COUNT, "token": {"type": "string"}, "bytes": {"type": "array", "items": COUNT}}
BEST = closed(**WRITTEN, logprob=NUMBER)
SAMPLED_BEST = closed(**WRITTEN, sampled_logprob=NUMBER)
TOKEN = closed(
    **WRITTEN,
    logprob=NUMBER,
    sampled_logprob=NUMBER,
    top={"type": "array", "items": BEST},
    sampled_top={"type": "array", "items": SAMPLED_BEST},
)


def answered(run: Run, *arguments: object) -> dict[str, Any]:
    """The object that `run --json` prints, alone on standard output."""
    done = run.ok("run", *arguments, "--json")
    assert done.err == ""
    found: dict[str, Any] = json.loads(done.out)
    return found


def test_the_answer_is_on_standard_output_and_its_account_on_standard_error(
    run: Run, scripted: Path, backend: str
) -> None:
    done = run.ok("run", scripted, "what?", "--backend", backend)
    assert done.out == f"{SAYS}\n"
    account = done.err.splitlines()
    assert re.fullmatch(
        r"9 passes · \d\d\.\d\d MFLOP · \d\d\.\d\d MB of weights read"
        r" · prompt \d\d tokens in \d+\.\d\d s",
        account[0],
    )
    bound = r", \d+ % of what this memory allows" if backend == "native" else ""
    assert re.fullmatch(rf"8 more tokens in \d+\.\d\d s, [\d.]+ a second{bound}", account[1])
    words = {"native": r"native backend \(\S+\), f16 cache", "reference": NUMPY}[backend]
    assert re.fullmatch(
        r"greedy \(neither the request nor the model file sets sampling\)"
        rf" · {words}, \d+ threads?",
        account[2],
    )
    missing = [] if WITHOUT_NATIVE is None else [rf"{NUMPY}: .+"]
    assert len(account[3:]) == len(missing)
    assert all(map(re.fullmatch, missing, account[3:]))


def test_a_model_without_a_kernel_runs_on_the_reference_and_says_so(run: Run, odd: Path) -> None:
    account = run.ok("run", odd, "hi", "--max-tokens", 1).err.splitlines()
    why = WITHOUT_NATIVE or f"there is no kernel for heads of {ODD_HEADS} elements"
    assert account[-1] == f"reference backend (NumPy): {why}"
    assert re.search(rf" · {NUMPY}, \d+ threads?$", account[-2])
    said = run.refused("run", odd, "hi", "--backend", "native")
    assert said.startswith(
        f"{odd}: the native backend has no kernel for heads of {ODD_HEADS} elements\n"
        if WITHOUT_NATIVE is None
        else "the native backend is not here\n"
    )
    said = run.refused("run", odd, "hi", "--kv-type", "bf16")
    assert said == "--kv-type bf16: the reference backend keeps its cache in f32"


def test_the_prompt_comes_from_an_argument_a_file_or_standard_input(
    run: Run, tiny: Path, tmp_path: Path
) -> None:
    text = "Grüße \u2028, the\tdog\r\n"
    (tmp_path / "prompt.txt").write_bytes(text.encode())
    limit = ("--max-tokens", 3, "--json")
    answers = [
        json.loads(run.ok("run", tiny, text, *limit).out),
        json.loads(run.ok("run", tiny, "--file", tmp_path / "prompt.txt", *limit).out),
        json.loads(run.ok("run", tiny, *limit, typed=text).out),
    ]
    with fp.load(tiny) as model:
        prompt = model.prepare(text)
    for answer in answers:
        assert answer["usage"]["prompt_tokens"] == len(prompt.ids)
        assert answer["text"] == answers[0]["text"]


def test_a_prompt_that_is_missing_doubled_unreadable_or_empty_is_refused(
    run: Run, tiny: Path, tmp_path: Path
) -> None:
    latin = tmp_path / "latin.txt"
    latin.write_bytes("Grüße".encode("latin-1"))
    assert "both given" in run.refused("run", tiny, "hi", "--file", latin)
    assert f"{latin}: cannot be read as UTF-8" in run.refused("run", tiny, "-f", latin)
    none = tmp_path / "none"
    missing = f"{none}: No such file or directory"
    assert run.refused("run", tiny, "-f", none) == missing
    assert run.refused("run", tiny, "hi", "--template", none) == missing
    assert "not UTF-8" in run.refused("run", tiny, typed=b"\xff")
    assert run.refused("run", tiny).startswith("the prompt is empty\n")
    assert run.refused("run", tiny, "  \n").startswith("the prompt is empty\n")
    assert "--raw" not in run.refused("run", tiny, "")
    assert "--raw" in run.refused("run", tiny, "  \n")
    assert run.refused("run", tiny, "--raw", "").startswith("the prompt is empty: without a text")
    assert run("run", tiny, "  \n", "--raw", "--max-tokens", 1).status == 0


def test_a_prompt_that_does_not_fit_is_refused_with_both_numbers(run: Run, tiny: Path) -> None:
    said = run.refused("run", tiny, "zq" * 300)
    assert re.match(r"a prompt of \d{3} tokens, the context holds 512\n  shorten", said)
    said = run.refused("run", tiny, "hello", "--context", 8)
    assert re.match(r"a prompt of \d\d tokens, the context holds 8\n", said)


def test_a_system_message_and_raw_text_make_the_prompt(run: Run, tiny: Path) -> None:
    with fp.load(tiny) as model:
        told = model.prepare([fp.system("Be brief."), fp.user("hello")])
        plain = model.prepare(fp.raw("hello"))
    limit = ("--max-tokens", 1)
    found = answered(run, tiny, "hello", "--system", "Be brief.", *limit)
    assert found["usage"]["prompt_tokens"] == len(told.ids)
    found = answered(run, tiny, "hello", "--raw", *limit)
    assert found["usage"]["prompt_tokens"] == len(plain.ids)
    assert "--system needs a chat template" in run.refused(
        "run", tiny, "hello", "--raw", "--system", "x"
    )


def test_a_model_without_a_template_completes_the_text_and_says_so(run: Run, bare: Path) -> None:
    done = run.ok("run", bare, "hello", "--max-tokens", 1)
    assert "has no chat template: the text is completed as it is" in done.err.splitlines()[0]
    assert run.refused("run", bare, "hello", "--system", "x").startswith("--system needs a chat")
    done = run("run", bare, "hello", "--thinking", "off")
    assert done.status == 2
    assert "error: --thinking needs a chat template" in done.err


def test_a_template_can_be_brought_along(run: Run, bare: Path, tmp_path: Path) -> None:
    template = tmp_path / "own.jinja"
    template.write_text("{{ messages[0].content }} {{ mood }}", "utf-8")
    own = ("--template", template, "--max-tokens", 1)
    found = answered(run, bare, "the", *own, "--template-arg", 'mood="quick"')
    assert found["usage"]["prompt_tokens"] == len(small().encode("the quick"))


def test_thinking_is_switched_by_the_template(run: Run, tiny: Path) -> None:
    limit = ("--max-tokens", 1)
    counts = [
        answered(run, tiny, "hello", *limit, *options)["usage"]["prompt_tokens"]
        for options in (
            (),
            ("--thinking", "on"),
            ("--thinking", "off"),
            ("--template-arg", "enable_thinking=false"),
        )
    ]
    assert counts[0] == counts[1] < counts[2] == counts[3]


def test_control_tokens_in_the_users_text_stay_text_unless_asked(run: Run, tiny: Path) -> None:
    limit = ("--max-tokens", 1)
    text = f"a {END} b"
    plain = answered(run, tiny, text, *limit)["usage"]["prompt_tokens"]
    control = answered(run, tiny, text, *limit, "--control-tokens")["usage"]["prompt_tokens"]
    written = len(small().encode(END))
    assert plain - control == written - 1 > 1


def test_json_has_exactly_the_keys_that_are_documented(run: Run, tiny: Path) -> None:
    found = answered(run, tiny, "hello", "--max-tokens", 5)
    jsonschema.validate(found, closed(**PLAIN))
    found = answered(
        run, tiny, "hello", "--max-tokens", 5, "--logprobs", 3, "--temperature", 1, "--seed", 1
    )
    jsonschema.validate(found, closed(**PLAIN, tokens={"type": "array", "items": TOKEN}))
    assert [len(token["top"]) for token in found["tokens"]] == [3] * 5
    written = b"".join(bytes(token["bytes"]) for token in found["tokens"])
    assert written.decode("utf-8", "replace") == found["text"]


def test_logprobs_are_those_of_the_answer(run: Run, tiny: Path, backend: str) -> None:
    options = {"temperature": 0.7, "top_k": 5, "seed": 3}
    arguments = [part for name, value in options.items()
                 for part in (f"--{name.replace('_', '-')}", value)]  # fmt: skip
    found = answered(run, tiny, "hello", "--max-tokens", 4, "--logprobs", 0, *arguments,
                     "--backend", backend)  # fmt: skip
    with fp.load(tiny, backend=backend) as model:
        answer = model.generate("hello", max_tokens=4, temperature=0.7, top_k=5, seed=3)
    for token, step in zip(found["tokens"], answer.steps, strict=True):
        assert (token["id"], token["logprob"], token["sampled_logprob"], token["top"]) == (
            step.id, step.logprob, step.sampled_logprob, []
        )  # fmt: skip


def test_rows_of_the_table_without_a_token_are_shown_by_their_number(run: Run, tiny: Path) -> None:
    for row in (TOKENS, ROWS - 1):
        found = answered(
            run, tiny, "hi", "--logit-bias", f"{row}=100", "--max-tokens", 2, "--logprobs", 1
        )
        assert [token["token"] for token in found["tokens"]] == [f"[no token {row}]"] * 2
        assert found["text"] == ""


_RARE: dict[str, object] = {"typical_p": 1, "top_n_sigma": 0, "xtc_probability": 0}
_RARE |= {"xtc_threshold": 0.1, "penalty_last_n": -1, "dry_multiplier": 0, "dry_base": 1.75}
_RARE |= {"dry_allowed_length": 2, "dry_penalty_last_n": -1}
_RARE |= {"dry_sequence_breakers": ["\n", ":", '"', "*"]}
_RARE |= {"sampler": "default", "stages": list(STAGES)}


def test_every_sampling_value_says_where_it_came_from(run: Run, tmp_path: Path) -> None:
    stated = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95}
    path = random_folder(tmp_path / "m", generation_config=stated)
    limit = ("--max-tokens", 2)
    found = answered(run, path, "hello", *limit)["sampling"]
    drawn = found.pop("seed")
    assert drawn["source"] == "engine default"
    assert 0 <= drawn["value"] < 2**32
    assert found == {
        "temperature": {"value": 0.6, "source": "model file"},
        "top_k": {"value": 20, "source": "model file"},
        "top_p": {"value": 0.95, "source": "model file"},
        "min_p": {"value": 0.0, "source": "engine default"},
        "repetition_penalty": {"value": 1.0, "source": "engine default"},
        "frequency_penalty": {"value": 0.0, "source": "engine default"},
        "presence_penalty": {"value": 0.0, "source": "engine default"},
        "logit_bias": {"value": {}, "source": "engine default"},
    } | {name: {"value": off, "source": "engine default"} for name, off in _RARE.items()}
    found = answered(run, path, "hello", *limit, "--ignore-model-defaults")["sampling"]
    assert {setting["source"] for setting in found.values()} == {"engine default"}
    found = answered(run, path, "hello", *limit, "--temperature", 0, "--top-k", 0, "--seed", 0)
    for name in ("temperature", "top_k", "seed"):
        assert found["sampling"][name] == {"value": 0, "source": "request"}
    account = run.ok("run", path, "hello", *limit, "--seed", 5).err.splitlines()
    assert [line.partition(" · ")[0] for line in account].count(
        "temperature 0.6 (model file), top-k 20 (model file), top-p 0.95 (model file),"
        " seed 5 (request)"
    ) == 1


def test_what_acts_on_a_greedy_choice_is_named_and_what_does_not_too(run: Run, tiny: Path) -> None:
    said = run.ok("run", tiny, "hi", "--max-tokens", 1, "--repetition-penalty", 1.1,
                  "--logit-bias", "3=1", "--top-k", 3, "--seed", 1).err  # fmt: skip
    assert (
        "greedy (neither the request nor the model file sets sampling), "
        "logit-bias of 1 token (request), repetition-penalty 1.1 (request) · " in said
    )
    assert "without effect where the choice is greedy: top-k, seed\n" in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--seeds", "3-1"], "3-1 are not 1 to 10,000 seeds"),
        (["--seeds", "0-10000"], "0-10000 are not 1 to 10,000 seeds"),
        (["--seeds", "a"], "wanted seeds from 0 to 2⁶³ - 1, as 0-9 or 1,4,7"),
        (["--seeds", "1-"], "wanted seeds from 0"),
        (["--seeds", "9" * 5000], "wanted seeds from 0"),
        (["--seeds", "9" * 19], "--seeds 9999999999999999999: wanted seeds from 0"),
        (["--seeds", "1", "--seed", "1"], "both given"),
        (["--logprobs", "1"], "together with --json"),
        (["--logprobs", "21", "--json"], "wanted 0 to 20"),
        (["--temperature", "-1"], "--temperature -1.0: wanted"),
        (["--temperature", "warm"], "Invalid value for '--temperature'"),
        (["--top-p", "0"], "--top-p 0.0: wanted"),
        (["--max-tokens", "0"], "--max-tokens 0: wanted"),
        (["--context", "0"], "--context 0: wanted a whole number from 1 to 512"),
        (["--threads", "0"], "--threads 0"),
        (["--temprature", "1"], "--temperature"),
        (["--thinking", "maybe"], 'wanted "on" or "off"'),
        (["--template-arg", "x"], "wanted KEY=JSON"),
        (["--raw", "--template", "x"], "--raw and --template were both given"),
        (["--raw", "--template-arg", "x=1"], "--template-arg needs a chat template"),
        (
            ["--thinking", "off", "--template-arg", "enable_thinking=true"],
            "--thinking and the template's argument enable_thinking were both given",
        ),
        (["--template-arg", "x=y"], "'y' is not JSON"),
        (["--template-arg", "x=NaN"], "'NaN' is not JSON"),
        (["--template-arg", "x=1", "--template-arg", "x=2"], "x is given twice"),
        (["--template-arg", "color=1"], "color"),
        (["--logit-bias", "3"], "wanted ID=NUMBER"),
        (["--logit-bias", "3=1", "--logit-bias", "3=2"], "3 is given twice"),
        (["--logit-bias", "3=nan"], "nan"),
        (["--logit-bias", f"{ROWS}=1"], str(ROWS)),
        (["--backend", "torch"], "there is no backend 'torch'"),
        (["--backend", "reference", "--kv-type", "f16"], "--kv-type f16: the reference backend"),
        (["--kv-type", "f64"], "--kv-type 'f64': wanted f16, bf16, f32"),
        (["--accept-unknown", "nothing"], "--accept-unknown nothing"),
        (["one", "more"], "more"),
    ],
)
def test_a_wrong_request_is_refused_naming_what_is_wrong(
    run: Run, tiny: Path, arguments: list[str], says: str
) -> None:
    assert says in run.refused("run", tiny, "hello", *arguments)


def test_a_model_that_is_not_there_is_refused_and_one_that_is_broken_fails(
    run: Run, tmp_path: Path
) -> None:
    assert run.refused("run", "smolm2-135m", "hi").startswith('there is no model "smolm2-135m"\n')
    assert "can be counted and not run" in run.refused("run", "gpt2", "hi")
    broken = random_folder(tmp_path / "m")
    (broken / "tokenizer.json").write_text("{", "utf-8")
    done = run("run", broken, "hi")
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("error: tokenizer.json: not JSON")


def test_an_unknown_setting_stops_loading_unless_it_is_accepted_and_recorded(
    run: Run, tmp_path: Path
) -> None:
    path = random_folder(tmp_path / "m", attn_temperature_tuning=4)
    done = run("run", path, "hi")
    assert (done.status, done.out) == (1, "")
    assert "  --accept-unknown attn_temperature_tuning   loads without it" in done.err
    accept = ("--accept-unknown", "attn_temperature_tuning", "--max-tokens", 1)
    said = run.ok("run", path, "hi", *accept).err.splitlines()
    assert "loaded without attn_temperature_tuning = 4 (--accept-unknown)" in said
    assert answered(run, path, "hi", *accept)["accepted_unknown"] == {"attn_temperature_tuning": 4}


def test_an_answer_that_a_limit_ended_says_which(run: Run, tiny: Path) -> None:
    said = run.ok("run", tiny, "hello", "--max-tokens", 3).err
    assert "stopped after 3 tokens, the most allowed (--max-tokens)\n" in said
    with fp.load(tiny) as model:
        prompt = len(model.prepare("hello").ids)
    done = run.ok("run", tiny, "hello", "--context", prompt)
    said = f"stopped after 1 token: the context of {prompt} is full (--context)\n"
    assert said in done.err
    assert f"prompt {prompt} tokens" in done.err


def test_an_object_is_printed_even_where_ctrl_c_stopped_the_answer(
    run: Run, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = Generation.__next__

    def interrupted(self: Generation) -> Step:
        if len(self.steps) == 3:
            raise KeyboardInterrupt
        return go_on(self)

    monkeypatch.setattr(Generation, "__next__", interrupted)
    done = run("run", tiny, "hello", "--json")
    assert (done.status, done.err) == (130, "stopped\n")
    found = json.loads(done.out)
    assert found["finish_reason"] is None
    assert found["usage"]["completion_tokens"] == found["work"]["passes"] == 3
    done = run("run", tiny, "hello", "--json", "--seeds", "0-1")
    assert done.status == 130
    (found,) = json.loads(done.out)["answers"]
    assert (found["seed"], found["finish_reason"]) == (0, None)
    assert found["usage"]["completion_tokens"] == found["work"]["passes"] == 3
    assert found["work"]["seconds_prefill"] > 0
