from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.counting import TINY_TENSORS, Counting, count_at_hub, holes, leave_alone, tiny_folder
from cli.qwen3_files import CONFIG, HEADER, write_folder
from cli.range_hub import range_hub
from formats.gguf_writer import TensorData as GgufTensor
from formats.gguf_writer import Typed, gguf_bytes
from formats.safetensors_writer import write_safetensors, write_sharded
from forwardpass.dtypes import DTYPES
from forwardpass.shapes import SHAPES

STORED = """\
  unique in memory       596,049,920      1,192,099,840 bytes   1.19 GB
  stored in the file     751,632,384      1,503,264,768 bytes   1.50 GB
  the difference         155,582,464      lm_head.weight is model.embed_tokens.weight, stored twice
  file                                    1,503,300,328 bytes   header 35,560
"""


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    leave_alone(monkeypatch, tmp_path / "home")


@pytest.fixture
def count(capsys: pytest.CaptureFixture[str]) -> Counting:
    return Counting(capsys)


def test_a_file_that_stores_a_tied_table_twice_says_so_and_why(
    count: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folder(tmp_path / "qwen")
    monkeypatch.chdir(tmp_path)
    text = "\n".join(count("./qwen"))
    assert " · from the file's header, 36 kB read\n" in text
    assert STORED in f"{text}\n"
    found = count.json("./qwen")
    assert found["parameters"]["unique"] == 596_049_920
    assert found["parameters"]["stored"] == 751_632_384
    assert found["bytes"] == {
        "unique": 1_192_099_840,
        "stored": 1_503_264_768,
        "dtype": "bf16",
        "file": 1_503_300_328,
        "header": 35_560,
    }


def test_a_model_on_the_hub_is_counted_from_its_header_and_nothing_is_downloaded(
    tmp_path: Path,
) -> None:
    folder = write_folder(tmp_path / "qwen")
    with range_hub("Qwen/Qwen3-0.6B", folder) as hub:
        done = count_at_hub(hub.url, "Qwen/Qwen3-0.6B")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(
        "Qwen/Qwen3-0.6B   qwen3 · 28 layers · bf16 · "
        "from the file's header, 36 kB read, nothing downloaded\n"
    )
    assert STORED in done.stdout
    config = (folder / "config.json").stat().st_size
    assert hub.sent == {"config.json": config, "model.safetensors": HEADER}
    assert not list((tmp_path / "home").rglob("*.safetensors"))


def test_shards_on_the_hub_are_counted_from_their_headers(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "sharded")
    names = list(TINY_TENSORS)
    shards = {
        f"model-0000{i + 1}-of-00002.safetensors": holes({n: TINY_TENSORS[n] for n in part})
        for i, part in enumerate((names[:5], names[5:]))
    }
    write_sharded(folder, shards)
    with range_hub("org/tiny", folder) as hub:
        done = count_at_hub(hub.url, "org/tiny", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["parameters"]["stored"] == found["parameters"]["unique"]
    assert found["bytes"]["file"] == sum((folder / name).stat().st_size for name in shards)
    assert found["bytes"]["header"] == found["bytes"]["file"] - found["bytes"]["stored"]


def test_two_different_tables_are_both_counted(count: Counting, tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "two")
    write_safetensors(folder / "model.safetensors", holes(TINY_TENSORS))
    text = "\n".join(count(folder))
    assert "two different tables: lm_head.weight,\n" in text
    found = count.json(folder)["parameters"]
    assert found["stored"] == found["unique"] == found["embedding"] + found["layers"] + 8 + 256
    assert found["head"] == 256


def test_one_table_that_is_stored_once_is_the_head_too(count: Counting, tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "one", tie_word_embeddings=True)
    shapes = {name: shape for name, shape in TINY_TENSORS.items() if name != "lm_head.weight"}
    write_safetensors(folder / "model.safetensors", holes(shapes))
    lines = count(folder)
    assert "  head                            8 × 32" in "\n".join(lines)
    assert any(line.endswith("model.embed_tokens.weight is both, stored once") for line in lines)
    assert "  weights: 2 × all (the embedding is the head)" in "\n".join(lines)


def test_the_mask_buffers_of_the_published_gpt2_are_named(count: Counting, tmp_path: Path) -> None:
    layer: dict[str, tuple[int, ...]] = {
        "ln_1.weight": (768,),
        "ln_1.bias": (768,),
        "attn.bias": (1, 1, 1024, 1024),
        "attn.c_attn.weight": (768, 2304),
        "attn.c_attn.bias": (2304,),
        "attn.c_proj.weight": (768, 768),
        "attn.c_proj.bias": (768,),
        "ln_2.weight": (768,),
        "ln_2.bias": (768,),
        "mlp.c_fc.weight": (768, 3072),
        "mlp.c_fc.bias": (3072,),
        "mlp.c_proj.weight": (3072, 768),
        "mlp.c_proj.bias": (768,),
    }
    shapes: dict[str, tuple[int, ...]] = {"wte.weight": (50257, 768), "wpe.weight": (1024, 768)}
    shapes |= {f"h.{i}.{name}": shape for i in range(12) for name, shape in layer.items()}
    shapes |= {"ln_f.weight": (768,), "ln_f.bias": (768,)}
    (tmp_path / "config.json").write_text(json.dumps(SHAPES["gpt2"]))
    write_safetensors(tmp_path / "model.safetensors", holes(shapes, "F32"))
    lines = count(tmp_path)
    assert (
        "  the difference          12,582,912      buffers that no op reads: 12 × h.*.attn.bias"
        in lines
    )
    found = count.json(tmp_path)["parameters"]
    assert (found["unique"], found["stored"]) == (124_439_808, 137_022_720)


def qwen_coder_gguf(path: Path) -> Path:
    """The names, shapes and types of Qwen2.5-Coder 1.5B in Q4_K_M, over a hole."""
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {
        "token_embd.weight": ("q4_k", (151936, 1536)),
        "output.weight": ("q6_k", (151936, 1536)),
        "output_norm.weight": ("f32", (1536,)),
    }
    for i in range(28):
        better = "q6_k" if i % 2 else "q4_k"
        layer: dict[str, tuple[str, tuple[int, ...]]] = {
            "attn_norm.weight": ("f32", (1536,)),
            "attn_q.weight": ("q4_k", (1536, 1536)),
            "attn_q.bias": ("f32", (1536,)),
            "attn_k.weight": ("q4_k", (256, 1536)),
            "attn_k.bias": ("f32", (256,)),
            "attn_v.weight": (better, (256, 1536)),
            "attn_v.bias": ("f32", (256,)),
            "attn_output.weight": ("q4_k", (1536, 1536)),
            "ffn_norm.weight": ("f32", (1536,)),
            "ffn_gate.weight": ("q4_k", (8960, 1536)),
            "ffn_up.weight": ("q4_k", (8960, 1536)),
            "ffn_down.weight": (better, (1536, 8960)),
        }
        shapes |= {f"blk.{i}.{name}": tensor for name, tensor in layer.items()}
    placed: dict[str, GgufTensor] = {}
    end = 0
    for name, (kind, shape) in shapes.items():
        placed[name] = GgufTensor(kind, shape, b"", end)
        end += -(-DTYPES[kind].nbytes(math.prod(shape)) // 32) * 32
    metadata: dict[str, object] = {
        "general.architecture": "qwen2",
        "qwen2.block_count": 28,
        "qwen2.context_length": 32768,
        "qwen2.embedding_length": 1536,
        "qwen2.feed_forward_length": 8960,
        "qwen2.attention.head_count": 12,
        "qwen2.attention.head_count_kv": 2,
        "qwen2.attention.layer_norm_rms_epsilon": 1e-6,
        "qwen2.rope.freq_base": Typed("float32", 1e6),
    }
    header = gguf_bytes(metadata, placed)
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + end)
    return path


def check_qwen_coder(count: Counting, path: Path) -> None:
    text = "\n".join(count(path))
    assert "  stored in the file   1,777,088,000      1,111,370,240 bytes   1.11 GB" in text
    assert "two different tables: output.weight q6_k," in text
    assert "q4_k 169, q6_k 29, f32 141 tensors, 5.00 bits a weight" in text
    assert any(
        line.startswith("  in bf16 ") and "3,554,176,000" in line
        for line in count(path, "--dtype", "bf16")
    )
    found = count.json(path)
    assert found["parameters"]["unique"] == found["parameters"]["stored"] == 1_777_088_000
    assert found["bytes"]["dtype"] == "q4_k 169, q6_k 29, f32 141"
    assert found["bytes"]["file"] == path.stat().st_size


def test_a_gguf_file_shows_its_mix_of_types_and_its_two_tables(
    count: Counting, tmp_path: Path
) -> None:
    check_qwen_coder(count, qwen_coder_gguf(tmp_path / "coder.gguf"))


@pytest.mark.large
def test_the_real_qwen_coder_stores_two_different_tables(
    count: Counting, model_path: Callable[[str], Path]
) -> None:
    check_qwen_coder(count, model_path("qwen2.5-coder-1.5b"))


def test_the_real_smollm2_is_counted_with_the_numbers_of_its_model(
    count: Counting, model_path: Callable[[str], Path]
) -> None:
    smol = count.json(model_path("smollm2-135m"))
    assert smol["parameters"]["unique"] == smol["parameters"]["stored"] == 134_515_008
    assert smol["bytes"]["unique"] == 96_576_768
    assert smol["bytes"]["file"] == 98_362_432
    assert smol["kv_bytes_per_token"] == 23_040


def test_a_lone_safetensors_file_says_what_it_stores_and_no_more(
    count: Counting, tmp_path: Path
) -> None:
    shapes: dict[str, tuple[int, ...]] = {"a": (4, 8), "b": (8,)}
    path = write_safetensors(tmp_path / "lone.safetensors", holes(shapes))
    lines = count(path)
    assert "   2 tensors without a config" in lines[0]
    assert "  stored in the file              40                 80 bytes   80 B" in lines
    found = count.json(path)
    assert found["parameters"]["stored"] == 40
    nothing = ("architecture", "flop_per_token", "kv_bytes_per_token", "crossover_tokens")
    assert all(found[key] is None for key in nothing)
    assert found["parameters"]["unique"] is None
    status, error = count.refused(path, "--visible", "128")
    assert status == 2
    assert "--visible needs a config" in error


def test_a_safetensors_file_beside_its_config_is_the_model(count: Counting, tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "model")
    path = write_safetensors(folder / "weights.safetensors", holes(TINY_TENSORS))
    assert count.json(path)["architecture"] == "llama"
    shard = path.rename(folder / "model-00001-of-00002.safetensors")
    assert count.json(shard)["architecture"] is None
    assert "counted from its config, no weights needed" in "".join(count(folder)[:2])


@pytest.mark.parametrize("model", ["org/nowhere", "smollm2-135m"])
def test_a_model_that_is_not_here_and_not_to_be_reached_is_a_clear_failure(model: str) -> None:
    done = count_at_hub("http://127.0.0.1:1", model)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(f"error: {model}: the Hugging Face hub: connection refused")
    assert "Traceback" not in done.stderr
    assert ("forwardpass pull smollm2-135m" in done.stderr) == (model == "smollm2-135m")


def test_counting_a_file_loads_no_numpy(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "model")
    write_safetensors(folder / "model.safetensors", holes(TINY_TENSORS))
    code = (
        "import sys; from forwardpass.cli.main import main; main(['count', *sys.argv[1:]]); "
        "sys.exit('numpy' in sys.modules)"
    )
    for path in (folder, qwen_coder_gguf(tmp_path / "coder.gguf")):
        done = subprocess.run([sys.executable, "-c", code, path], stdout=subprocess.DEVNULL)
        assert done.returncode == 0


def test_the_sparse_file_has_the_config_of_the_bundled_shape() -> None:
    common = SHAPES["qwen3-0.6b"].keys() & CONFIG.keys()
    assert {key: SHAPES["qwen3-0.6b"][key] for key in common} == {
        key: CONFIG[key] for key in common
    }
