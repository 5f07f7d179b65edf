from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forwardpass.errors import ModelNotFound, RequestError
from forwardpass.hub import Cache, HubId, ModelFiles, locate, parse_hub_id, resolve, settings
from hub.parts import catalogue, entry

SHAPES = ("gpt2", "qwen3-0.6b")


def found(reference: str, cache: Cache) -> ModelFiles:
    return resolve(reference, catalogue=catalogue(entry()), shapes=SHAPES, cache=cache, fetch=False)


def test_a_gguf_file_is_a_model(tmp_path: Path, cache: Cache) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF1234")
    files = found(str(path), cache)
    assert (files.kind, files.path, files.label) == ("gguf", path, str(path))
    assert (files.origin, files.license, files.bytes) == ("a local file", None, 8)


def test_a_file_that_starts_like_gguf_is_one_whatever_its_name(
    tmp_path: Path, cache: Cache
) -> None:
    path = tmp_path / "sha256-0123"
    path.write_bytes(b"GGUF1234")
    assert found(str(path), cache).kind == "gguf"


def test_a_folder_with_a_config_is_a_model(tmp_path: Path, cache: Cache) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"12345")
    files = found(str(tmp_path), cache)
    assert (files.kind, files.path, files.bytes) == ("folder", tmp_path, 7)


def test_a_config_or_a_safetensors_file_alone_is_a_model(tmp_path: Path, cache: Cache) -> None:
    for name, kind in (("config.json", "config"), ("m.safetensors", "safetensors")):
        path = tmp_path / "alone" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}")
        assert found(str(path), cache).kind == kind


def test_a_path_goes_before_an_alias_and_a_folder_without_a_config_does_not(
    tmp_path: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gpt2").mkdir()
    assert found("gpt2", cache).kind == "shape"
    Path("gpt2/config.json").write_text("{}")
    assert found("gpt2", cache).kind == "folder"


def test_a_shape_is_known_without_files(cache: Cache) -> None:
    files = found("qwen3-0.6b", cache)
    assert (files.kind, files.paths, files.bytes) == ("shape", (), 0)
    with pytest.raises(RequestError, match=r"qwen3-0\.6b is a shape, known without weights"):
        _ = files.path


def test_a_misspelt_name_gets_the_nearest_one(cache: Cache) -> None:
    with pytest.raises(ModelNotFound) as caught:
        found("tinyy", cache)
    assert str(caught.value).splitlines() == [
        'there is no model "tinyy"',
        "  not a file, not an alias, and a Hugging Face id looks like org/name",
        "  did you mean tiny?     forwardpass models lists all",
    ]


def test_a_name_like_no_other_gets_the_list(cache: Cache) -> None:
    with pytest.raises(ModelNotFound) as caught:
        found("zzzzzzzz", cache)
    assert caught.value.advice == "forwardpass models lists all"


def test_a_misspelt_path_gets_the_nearest_file(tmp_path: Path, cache: Cache) -> None:
    (tmp_path / "model-q4.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelNotFound, match="there is no such file") as caught:
        found(str(tmp_path / "model-q4.guf"), cache)
    assert caught.value.advice == f"did you mean {tmp_path / 'model-q4.gguf'}?"


def test_a_folder_that_is_no_model_says_what_it_holds(tmp_path: Path, cache: Cache) -> None:
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelNotFound, match=r"a folder without config\.json; it holds a\.gguf"):
        found(str(tmp_path), cache)


def test_a_file_of_another_kind_is_refused(tmp_path: Path, cache: Cache) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    with pytest.raises(ModelNotFound, match="not a model file"):
        found(str(path), cache)


@pytest.mark.parametrize(
    "name", ["", "\0", "a\0b.gguf", "\x1b[31m", "x" * 5_000, "./" + "y" * 5_000]
)
def test_hostile_names_lead_to_one_printable_line(name: str, cache: Cache) -> None:
    with pytest.raises(ModelNotFound) as caught:
        found(name, cache)
    assert caught.value.fact.isprintable()
    assert len(caught.value.fact) < 300


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_named_pipe_is_not_opened(tmp_path: Path, cache: Cache) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelNotFound, match="not a model file"):
        found(str(tmp_path / "pipe"), cache)


def test_locate_says_none_for_what_would_have_to_be_fetched(cache: Cache) -> None:
    known = catalogue(entry())
    assert locate("tiny", catalogue=known, shapes=SHAPES, cache=cache) is None
    assert locate("org/tiny", catalogue=known, shapes=SHAPES, cache=cache) is None


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("org/name", ("org/name", "main", None)),
        ("org/name@v1.0", ("org/name", "v1.0", None)),
        ("org/name@refs/pr/3", ("org/name", "refs/pr/3", None)),
        ("org/name:Q4_K_M", ("org/name", "main", "Q4_K_M")),
        ("Org-1/na.me_x@abc:sub/file.gguf", ("Org-1/na.me_x", "abc", "sub/file.gguf")),
    ],
)
def test_a_hub_id_has_a_repository_a_revision_and_a_selector(
    text: str, wanted: tuple[str, str, str | None]
) -> None:
    assert parse_hub_id(text) == HubId(text, *wanted)


@pytest.mark.parametrize(
    "text",
    [
        *("name", "a/b/c", "/a/b", "../b", "a/..", "a/b@", "a/b:", "a/b@-x", "a/b@../../x"),
        *("a/b:../x", "a/b@x//y", "a--b/c", "a/b\n", "a /b", "a/b@x y", "https://host/a/b", "a/é"),
    ],
)
def test_what_is_not_a_hub_id_is_none(text: str) -> None:
    assert parse_hub_id(text) is None


@given(st.text(max_size=40))
def test_no_hub_id_leaves_the_cache(text: str) -> None:
    """Seed: hypothesis' own; nothing here is random beyond its search."""
    hub_id = parse_hub_id(f"org/{text}")
    if hub_id is not None:
        folder = Cache(Path("/home")).repository(hub_id.repo)
        assert folder.parent == Path("/home/hub")
        assert ".." not in folder.parts


@pytest.mark.parametrize("config", ["none", "folder", "pipe", "other files"])
def test_what_lies_here_is_never_looked_up_on_the_hub(
    tmp_path: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch, config: str
) -> None:
    folder = tmp_path / "org" / "name"
    folder.mkdir(parents=True)
    says = "org/name: a folder without config.json; it is empty"
    if config == "other files":
        (folder / "notes.txt").touch()
        says = "org/name: a folder without config.json; it holds notes.txt"
    elif config != "none":
        make = Path.mkdir if config == "folder" else os.mkfifo
        make(folder / "config.json")
        says = "org/name: a folder whose config.json is not a file; it holds config.json"
    monkeypatch.chdir(tmp_path)
    for look in (resolve, locate):
        with pytest.raises(ModelNotFound) as caught:
            look("org/name", catalogue=catalogue(entry()), shapes=SHAPES, cache=cache)
        assert caught.value.fact == says
    (tmp_path / "org" / "file").touch()
    with pytest.raises(ModelNotFound, match="org/file: not a model file"):
        found("org/file", cache)


def test_a_home_folder_of_nobody_is_refused(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    says = r"~nouser-here/x: the home folder of ~nouser-here is not known"
    with pytest.raises(RequestError, match=rf"^{says}"):
        found("~nouser-here/x", cache)
    for name in ("FORWARDPASS_HOME", "FORWARDPASS_CATALOGUE"):
        with pytest.raises(RequestError, match=f"^{name} = {says}"):
            settings({name: "~nouser-here/x"})
