from __future__ import annotations

import pytest

from forwardpass.errors import ModelNotFound
from forwardpass.hub.choice import Listing, RemoteFile, choose, is_plain_path
from forwardpass.hub.digest import Digest
from hub.fake_hub import COMMIT

GGUFS = ("m-IQ4_XS.gguf", "m-Q4_K.gguf", "m-Q4_K_M.gguf", "m-Q8_0.gguf", "mmproj-m.gguf")


def listing(*paths: str) -> Listing:
    files = (RemoteFile(path, 10 + i, Digest("git", "0" * 40)) for i, path in enumerate(paths))
    return Listing("org/m", COMMIT, None, tuple(files))


def chosen(selector: str | None, *paths: str) -> list[str]:
    label = f"org/m:{selector}" if selector else "org/m"
    return [file.path for file in choose(listing(*paths), selector, label).files]


@pytest.mark.parametrize(
    ("selector", "wanted"),
    [
        ("Q4_K_M", "m-Q4_K_M.gguf"),
        ("q4_k_m", "m-Q4_K_M.gguf"),
        ("q4_k", "m-Q4_K.gguf"),
        ("m-q8_0.GGUF", "m-Q8_0.gguf"),
        ("iq4_xs", "m-IQ4_XS.gguf"),
    ],
)
def test_a_quantisation_picks_one_file_whatever_its_case(selector: str, wanted: str) -> None:
    assert chosen(selector, *GGUFS) == [wanted]


def test_a_quantisation_that_is_only_part_of_another_word_picks_nothing() -> None:
    with pytest.raises(ModelNotFound, match="holds no GGUF file like Q4_XS") as caught:
        chosen("Q4_XS", *GGUFS)
    assert len(caught.value.details) == len(GGUFS)


def test_a_misspelt_file_gets_the_nearest_one() -> None:
    with pytest.raises(ModelNotFound) as caught:
        chosen("m-q4_k_m.guf", *GGUFS)
    assert caught.value.advice == "did you mean org/m:m-Q4_K_M.gguf?"


def test_a_selector_that_fits_several_files_lists_them() -> None:
    with pytest.raises(ModelNotFound, match="fits 2 files; name one") as caught:
        chosen("q8_0", "a-Q8_0.gguf", "b-Q8_0.gguf", "c-Q4_0.gguf")
    assert [line.split()[0] for line in caught.value.details] == ["a-Q8_0.gguf", "b-Q8_0.gguf"]


def test_several_gguf_files_and_none_named_are_listed_with_their_sizes() -> None:
    with pytest.raises(ModelNotFound, match="org/m holds 4 GGUF files; name one") as caught:
        chosen(None, *GGUFS)
    assert caught.value.details[0] == "m-IQ4_XS.gguf       10 B"
    assert caught.value.advice == "for example org/m:m-IQ4_XS.gguf"


def test_a_long_list_is_cut_and_says_so() -> None:
    with pytest.raises(ModelNotFound) as caught:
        chosen(None, *(f"m-{i}.gguf" for i in range(40)))
    assert caught.value.details[-1] == "and 10 more"


def test_the_only_gguf_file_needs_no_name() -> None:
    assert chosen(None, "m-Q4_0.gguf", "mmproj-m.gguf", "README.md") == ["m-Q4_0.gguf"]


def test_a_safetensors_repository_gives_config_tokenizer_and_weights_and_nothing_else() -> None:
    wanted = ["config.json", "tokenizer.json", "chat_template.jinja", "model.safetensors"]
    others = [
        "pytorch_model.bin",
        "model.fp16.safetensors",
        "onnx/model.onnx",
        "consolidated.safetensors",
    ]
    assert chosen(None, *others, *wanted, "original/config.json") == wanted


def test_shards_come_with_their_index_and_after_it() -> None:
    shards = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    paths = [*shards, "config.json", "model.safetensors.index.json", "other.safetensors"]
    assert chosen(None, *paths) == ["config.json", "model.safetensors.index.json", *shards]


@pytest.mark.parametrize(
    "paths", [(), ("README.md",), ("config.json", "pytorch_model.bin"), ("model.safetensors",)]
)
def test_a_repository_without_a_readable_model_is_refused(paths: tuple[str, ...]) -> None:
    with pytest.raises(ModelNotFound, match="holds no model that can be read"):
        chosen(None, *paths)


def test_a_selector_for_a_repository_without_gguf_files_is_refused() -> None:
    with pytest.raises(ModelNotFound, match="org/m holds no GGUF files"):
        chosen("Q4_0", "config.json", "model.safetensors")


@pytest.mark.parametrize(
    "path",
    ["", "/etc/passwd", "../a", "a/../b", "a//b", "./a", "a\\b", "C:/a", "a\0b", "a\nb", 3, None],
)
def test_a_path_that_could_leave_its_folder_is_not_plain(path: object) -> None:
    assert not is_plain_path(path)


def test_ordinary_paths_are_plain() -> None:
    assert all(is_plain_path(path) for path in ("a.gguf", "sub/dir/a-b_c.gguf", "..a", "a b.gguf"))
