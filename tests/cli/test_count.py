from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.counting import Counting, leave_alone, tiny_folder
from forwardpass.shapes import SHAPES
from forwardpass.work.layout import WIDTH

LLAMA = """\
llama-3.1-8b   llama · 32 layers · bf16 · counted from its shape, no weights needed

parameters                rows × columns         each            all   share
  embedding              128,256 × 4,096                 525,336,576   6.5 %
  layers                              32  218,112,000  6,979,584,000  86.9 %
    query                  4,096 × 4,096   16,777,216    536,870,912
    key                    4,096 × 1,024    4,194,304    134,217,728
    value                  4,096 × 1,024    4,194,304    134,217,728
    output                 4,096 × 4,096   16,777,216    536,870,912
    attention together                     41,943,040  1,342,177,280  19 % of a layer
    gate, up, down    3 × 4,096 × 14,336  176,160,768  5,637,144,576  81 % of a layer
    two norms                  2 × 4,096        8,192        262,144
  final norm                       4,096                       4,096
  head                   4,096 × 128,256                 525,336,576   6.5 %
  unique                                               8,030,261,248
  in bf16                                             16,060,522,496  bytes, 16.06 GB

one token                                                          FLOP
  weights: 2 × all but the embedding                     15,009,849,344
  of these, matrix products                              15,009,316,864  (torch counts these)
  each visible token                                            524,288
  attention equals the weights at                                28,629  visible tokens
  KV cache, bf16                                                131,072  bytes a token

by role                128 visible      8,192 visible     32,768 visible
  embedding           0.00   0.0 %       0.00   0.0 %       0.00   0.0 %
  attention.qkv       1.61  10.7 %       1.61   8.3 %       1.61   5.0 %
  attention.read      0.07   0.4 %       4.29  22.2 %      17.18  53.4 %
  attention.output    1.07   7.1 %       1.07   5.6 %       1.07   3.3 %
  mlp.up              7.52  49.9 %       7.52  38.9 %       7.52  23.4 %
  mlp.down            3.76  24.9 %       3.76  19.5 %       3.76  11.7 %
  head                1.05   7.0 %       1.05   5.4 %       1.05   3.3 %
  GFLOP              15.08              19.30              32.19
  other, beside it    0.00               0.03               0.10   norms, rope, softmax, adds

300 tokens after a prompt of 12,060                                FLOP
  prompt: 12,059 rows before the last, causal       206,451,290,144,768  206.45 T
  answer: weights, 300 × 15,009,849,344               4,502,954,803,200    4.50 T
  answer: attention, 524,288 × 3,662,850 visible      1,920,388,300,800    1.92 T
  answer together                                     6,423,343,104,000    6.42 T
  passes 300 (the first one also reads the prompt) · layer runs 9,600 · KV cache at the end 1.62 GB
"""


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    leave_alone(monkeypatch, tmp_path / "home")


@pytest.fixture
def count(capsys: pytest.CaptureFixture[str]) -> Counting:
    return Counting(capsys)


def test_llama_is_counted_as_it_was_worked_out(count: Counting) -> None:
    contexts = "128,8192,32768"
    lines = count("llama-3.1-8b", "--visible", contexts, "--prompt", 12060, "--answer", 300)
    assert lines == LLAMA.splitlines()


def test_layers_with_a_window_are_shown_apart_from_those_that_go_on_growing(
    count: Counting, tmp_path: Path
) -> None:
    config = {
        "model_type": "gemma3_text",
        "vocab_size": 262144,
        "hidden_size": 640,
        "num_hidden_layers": 18,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "intermediate_size": 2048,
        "sliding_window": 512,
        "torch_dtype": "bfloat16",
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    lines = count(tmp_path / "config.json", "--prompt", 600, "--answer", 100)
    assert "counted from its config, no weights needed" in lines[0] + lines[1]
    start = lines.index("one token" + " " * 58 + "FLOP")
    assert lines[start + 3 : start + 8] == [
        "  each visible token                                             73,728  18 layers",
        "  each visible token beyond the window of 512                    12,288  3 layers",
        "  attention equals the weights at                                41,075  visible tokens",
        "  KV cache, bf16                                                 18,432  bytes a token, "
        "18 layers",
        "  KV cache, bf16 beyond the window of 512                         3,072  bytes a token, "
        "3 layers",
    ]
    assert "  answer: attention, 61,440 × 51,200 in the window" in "\n".join(lines)
    assert "  answer: attention, 12,288 × 64,950 visible" in "\n".join(lines)


def test_a_prompt_alone_is_shown_by_three_conventions(count: Counting) -> None:
    assert count("llama-3.1-8b", "--prompt", 512)[-4:] == [
        "a prompt of 512                                                    FLOP",
        "  full attention square, head on every row            7,822,209,187,840    7.82 T",
        "  causal, head on every row                           7,753,623,928,832    7.75 T",
        "  causal, head on the last row only: ours             7,216,729,948,160    7.22 T",
    ]


def test_contexts_beyond_the_positions_are_counted_with_a_remark(count: Counting) -> None:
    assert count("gpt2", "--visible", "128,1024,8192")[-2:] == [
        "",
        "8,192 is beyond the 1,024 positions of the config: counted all the same",
    ]
    assert "beyond" not in "\n".join(count("gpt2"))
    assert "   1,024 visible" in "\n".join(count("gpt2"))


def test_more_than_three_contexts_take_a_second_table(count: Counting) -> None:
    lines = count("llama-3.1-8b", "--visible", "1,2,3,4")
    assert [line for line in lines if line.startswith("by role")] == [
        "by role                  1 visible          2 visible          3 visible",
        "by role                  4 visible",
    ]


def test_bytes_can_be_asked_for_in_another_type(count: Counting) -> None:
    lines = count("llama-3.1-8b", "--dtype", "q8_0")
    assert lines[0].startswith("llama-3.1-8b   llama · 32 layers · q8_0 ·")
    assert any(line.startswith("  in q8_0, vectors in f32") for line in lines)


def test_two_models_are_put_side_by_side(count: Counting) -> None:
    lines = count("llama-3.1-8b", "--diff", "llama-3.1-70b")
    width = lines[0].index("llama-3.1-70b") + len("llama-3.1-70b")
    rows = {line[:30].strip(): line[30:width].split() for line in lines[1 : lines.index("")]}
    assert rows["num_hidden_layers"] == ["32", "80"]
    assert rows["parameters, unique"] == ["8,030,261,248", "70,553,706,496"]
    assert rows["KV cache, bytes a token"] == ["131,072", "327,680"]
    assert any(line.endswith("  × 2.5") for line in lines)
    assert "architecture" not in rows
    assert "the same in both: architecture llama · num_key_value_heads 8" in "\n".join(lines)
    found = count.json("llama-3.1-8b", "--diff", "llama-3.1-70b")
    assert [model["model"] for model in found["models"]] == ["llama-3.1-8b", "llama-3.1-70b"]
    assert found["differences"]["parameters, unique"] == [8_030_261_248, 70_553_706_496]
    assert "architecture" not in found["differences"]
    assert "parameters, active" not in found["differences"]


def test_beside_a_mixture_stands_what_one_token_passes_through(count: Counting) -> None:
    found = count.json("llama-3.1-8b", "--diff", "qwen3-next-80b-a3b")["differences"]
    assert found["parameters, active"] == [8_030_261_248, 3_874_929_408]
    assert found["states, bytes a sequence"] == [None, 39_518_208]


def test_a_model_beside_itself_differs_in_nothing(count: Counting) -> None:
    lines = count("gpt2", "--diff", "gpt2")
    assert lines[1] == "nothing differs"
    assert all(len(line) <= WIDTH for line in lines)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--visible", "1,100000,1000000000", "--prompt", "1000000", "--answer", "1000000"],
        ["--prompt", "1"],
        ["--prompt", "1", "--answer", "1"],
        ["--diff", "llama-3.1-70b"],
        ["--dtype", "q8_0", "--kv-type", "f32"],
    ],
    ids=" ".join,
)
def test_no_line_is_wider_than_the_terminal(
    count: Counting, shape: str, options: list[str]
) -> None:
    for line in count(shape, *options):
        assert len(line) <= WIDTH
        assert line == line.rstrip()


def test_an_unknown_key_is_refused_with_the_way_out_and_taken_when_asked(
    count: Counting, tmp_path: Path
) -> None:
    folder = tiny_folder(tmp_path / "new", attn_temperature_tuning=4)
    status, error = count.refused(folder)
    assert status == 1
    assert "1 setting that this version does not understand" in error
    assert "attn_temperature_tuning = 4" in error
    assert "--accept-unknown attn_temperature_tuning" in error
    accept = ("--accept-unknown", "attn_temperature_tuning")
    lines = count(folder, *accept)
    assert "attn_temperature_tuning = 4" in lines[1] + lines[2]
    found = count.json(folder, *accept)
    assert found["accepted_unknown"] == {"attn_temperature_tuning": 4}
    assert count(folder, "--diff", "gpt2", *accept)
    status, error = count.refused("gpt2", *accept)
    assert status == 2
    assert "no unknown setting of gpt2 is called so" in error


def test_an_architecture_that_is_not_known_is_refused_never_guessed(
    count: Counting, tmp_path: Path
) -> None:
    status, error = count.refused(tiny_folder(tmp_path / "other", model_type="kimi_k3"))
    assert status == 1
    assert 'model_type "kimi_k3" is not an architecture of this version' in error


def test_a_config_that_is_no_object_is_refused(count: Counting, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[1, 2]")
    assert count.refused(tmp_path)[0] == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["llama-3.1-8c"], "did you mean llama-3.1-8b?"),
        (["gpt2", "--visible", "128,many"], '--visible 128,many: "many" is no number of tokens'),
        (["gpt2", "--visible", "1,0"], "--visible 0: wanted a number of tokens from 1"),
        (["gpt2", "--visible", "9" * 99], "is no number of tokens"),
        (["gpt2", "--prompt", "9" * 99], "wanted a number of tokens from 1 to 1,000,000,000,000"),
        (["gpt2", "--answer", "5"], "an answer without a prompt"),
        (["gpt2", "--prompt", "0"], "--prompt 0: wanted a number of tokens from 1"),
        (["gpt2", "--dtype", "bf61"], "did you mean bf16?"),
        (["gpt2", "--dtype", "q4_k", "--kv-type", "f64"], '"f64" is no type of a KV cache'),
        (["gpt2", "--diff", "gpt3"], "did you mean gpt2?"),
        (["gpt2", "--colour"], "--colour"),
    ],
    ids=str,
)
def test_a_wrong_request_is_refused_with_what_would_be_right(
    count: Counting, arguments: list[str], words: str
) -> None:
    status, error = count.refused(*arguments)
    assert status == 2
    assert words in error
