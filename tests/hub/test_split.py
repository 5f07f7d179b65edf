"""GGUF models in parts on the hub: chosen by quantisation, fetched together, counted by header."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import hf_hub_download

from cli.counting import count_at_hub, leave_alone
from cli.range_hub import range_hub
from formats.gguf_writer import TensorData, Typed, write_gguf
from forwardpass.errors import ModelNotFound
from forwardpass.formats import open_tensors
from forwardpass.hub import Cache, ModelFiles, resolve
from forwardpass.hub.choice import Listing, RemoteFile, choose, missing_parts
from forwardpass.hub.digest import Digest
from hub.fake_hub import COMMIT, FakeHub, Repository
from hub.parts import catalogue, point_at

Q4 = [f"q4/m-Q4_K_M-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
Q8 = [f"m-Q8_0-0000{i}-of-00002.gguf" for i in (1, 2)]
SHAPES = {
    "token_embd.weight": (32, 8),
    "output_norm.weight": (8,),
    "output.weight": (32, 8),
    "blk.0.attn_norm.weight": (8,),
    **{f"blk.0.attn_{side}.weight": (8, 8) for side in ("q", "k", "v", "output")},
    "blk.0.ffn_norm.weight": (8,),
    "blk.0.ffn_gate.weight": (16, 8),
    "blk.0.ffn_up.weight": (16, 8),
    "blk.0.ffn_down.weight": (8, 16),
}
UNIQUE = 2 * 32 * 8 + 3 * 8 + 4 * 64 + 3 * 128


def write_model(folder: Path, stem: str = "m-Q4_K_M") -> list[Path]:
    """A tiny Llama of ones in three parts."""
    paths = []
    names = list(SHAPES)
    for number in range(3):
        metadata: dict[str, object] = {
            "split.no": Typed("uint16", number),
            "split.count": Typed("uint16", 3),
            "split.tensors.count": Typed("int32", len(names)),
        }
        if not number:
            metadata |= {
                "general.architecture": "llama",
                "llama.block_count": 1,
                "llama.context_length": 64,
                "llama.embedding_length": 8,
                "llama.feed_forward_length": 16,
                "llama.attention.head_count": 2,
                "llama.attention.layer_norm_rms_epsilon": 1e-5,
            }
        tensors = {}
        for name in names[4 * number : 4 * number + 4]:
            size = 4
            for axis in SHAPES[name]:
                size *= axis
            tensors[name] = TensorData("f32", SHAPES[name], bytes(size))
        path = folder / f"{stem}-0000{number + 1}-of-00003.gguf"
        paths.append(write_gguf(path, metadata, tensors))
    return paths


@pytest.fixture
def split_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    """A hub with one model of three parts in a folder, and one that is whole."""
    written = write_model(tmp_path)
    files = {f"q4/{path.name}": path.read_bytes() for path in written}
    files["m-Q8_0.gguf"] = b"GGUF"
    for path in written:
        path.unlink()
    with FakeHub({"org/m": Repository(files, frozenset(files))}) as running:
        point_at(monkeypatch, running.url)
        yield running


def resolved(reference: str, cache: Cache) -> ModelFiles:
    return resolve(reference, catalogue=catalogue(), shapes=(), cache=cache)


def listing(*paths: str) -> Listing:
    files = (RemoteFile(path, 10, Digest("git", "0" * 40)) for path in paths)
    return Listing("org/m", COMMIT, None, tuple(files))


def chosen(selector: str | None, *paths: str) -> list[str]:
    label = f"org/m:{selector}" if selector else "org/m"
    return [file.path for file in choose(listing(*paths), selector, label).files]


@pytest.mark.parametrize("selector", ["Q4_K_M", Q4[0], Q4[2], Q4[1].rpartition("/")[2]])
def test_a_quantisation_or_any_part_picks_all_parts_in_order(selector: str) -> None:
    assert chosen(selector, *reversed(Q4), *Q8) == Q4


def test_a_split_model_counts_as_one_file() -> None:
    assert chosen(None, *Q8, "README.md") == Q8
    with pytest.raises(ModelNotFound, match="org/m holds 2 GGUF files; name one") as caught:
        chosen(None, *Q4, *Q8)
    assert [line.split() for line in caught.value.details] == [
        [Q8[0], "20", "B"],
        [Q4[0], "30", "B"],
    ]


def test_parts_that_a_repository_lacks_are_known() -> None:
    assert missing_parts(choose(listing(*Q4), "Q4_K_M", "org/m:Q4_K_M")) == []
    assert missing_parts(choose(listing(Q4[2]), "Q4_K_M", "org/m:Q4_K_M")) == Q4[:2]


def test_a_split_model_is_fetched_whole_and_used_again(split_hub: FakeHub, cache: Cache) -> None:
    files = resolved("org/m:Q4_K_M", cache)
    assert (files.kind, files.sha256, files.path.name) == (
        "gguf",
        None,
        "m-Q4_K_M-00001-of-00003.gguf",
    )
    parts = sorted(files.path.parent.iterdir())
    assert files.bytes == sum(path.stat().st_size for path in parts)
    with open_tensors(files.path) as file:
        assert set(file.tensors) == set(SHAPES)
    split_hub.requests.clear()
    assert resolved("org/m:q4_k_m", cache).path == files.path
    assert split_hub.requests == []


@pytest.mark.usefixtures("split_hub")
def test_parts_in_the_cache_of_the_hub_library_are_linked_together(cache: Cache) -> None:
    name = "q4/m-Q4_K_M-00002-of-00003.gguf"
    theirs = Path(hf_hub_download("org/m", name, revision=COMMIT))
    files = resolved("org/m:Q4_K_M", cache)
    part = files.path.with_name("m-Q4_K_M-00002-of-00003.gguf")
    assert part.is_symlink()
    assert part.resolve() == theirs.resolve()
    with open_tensors(files.path) as file:
        assert set(file.tensors) == set(SHAPES)


def test_a_model_without_one_of_its_parts_is_refused_before_it_is_fetched(
    split_hub: FakeHub, cache: Cache
) -> None:
    del split_hub.repositories["org/m"].files["q4/m-Q4_K_M-00002-of-00003.gguf"]
    with pytest.raises(ModelNotFound, match="the repository lacks 1 of the 3 parts") as caught:
        resolved("org/m:Q4_K_M", cache)
    assert caught.value.details == ("q4/m-Q4_K_M-00002-of-00003.gguf",)
    assert split_hub.downloads() == []


def test_a_split_model_on_the_hub_is_counted_from_its_headers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    leave_alone(monkeypatch, tmp_path / "home")
    folder = tmp_path / "repository"
    folder.mkdir()
    paths = write_model(folder)
    with range_hub("org/m", folder) as hub:
        done = count_at_hub(hub.url, "org/m:Q4_K_M", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["parameters"]["unique"] == found["parameters"]["stored"] == UNIQUE
    assert found["bytes"]["file"] == sum(path.stat().st_size for path in paths)
