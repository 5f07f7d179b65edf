"""The chat templates that a model brings, by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forwardpass.errors import RequestError, TemplateError, did_you_mean
from forwardpass.text.from_folder import read_json
from forwardpass.text.template import ChatTemplate

_KEY = "tokenizer.chat_template"
_DEFAULT, _WITH_TOOLS = "default", "tool_use"
_MAX_BYTES = 1 << 20


class Templates:
    """Named chat templates; `default`, and `tool_use` where there are tools, unless one is named.

    Source of that rule: transformers, `PreTrainedTokenizerBase.get_chat_template`.
    """

    def __init__(self, sources: Mapping[str, str], *, name: str = "chat template") -> None:
        self._sources = dict(sources)
        self._name = name
        self._parsed: dict[str, ChatTemplate] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the templates; none for a model without one."""
        return tuple(self._sources)

    def __bool__(self) -> bool:
        return bool(self._sources)

    def choose(self, with_tools: bool = False, name: str | None = None) -> ChatTemplate:
        """The template to use. Errors: TemplateError where the model has none."""
        if not self._sources:
            raise TemplateError(
                f"{self._name}: the model has no chat template",
                advice="--raw continues the text as it is; --template FILE brings a template",
            )
        if name is None:
            wanted = _WITH_TOOLS if with_tools and _WITH_TOOLS in self._sources else _DEFAULT
        else:
            wanted = name
        if wanted not in self._sources and name is None:
            raise self._no_default(with_tools)
        if wanted not in self._sources:
            near = did_you_mean(wanted, self._sources)
            raise RequestError(
                f"{self._name}: there is no template {wanted!r:.60}{near}",
                f"there are: {', '.join(self._sources)}",
            )
        if wanted not in self._parsed:
            label = self._name if wanted == _DEFAULT else f"{self._name} ({wanted})"
            self._parsed[wanted] = ChatTemplate(self._sources[wanted], name=label)
        return self._parsed[wanted]

    def _no_default(self, with_tools: bool) -> RequestError:
        """Of several templates none is for every conversation, and only tools choose another."""
        names = ", ".join(self._sources)
        there = f"there is only {names}" if len(self._sources) == 1 else f"there are: {names}"
        used = not with_tools and _WITH_TOOLS in self._sources
        return RequestError(
            f"{self._name}: none is called {_DEFAULT}, so none can be chosen; {there}",
            *([f"{_WITH_TOOLS} is taken where there are tools"] if used else []),
            advice="--template FILE brings one in their place",
        )

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, object], *, name: str = "chat template") -> Templates:
        """Those of a GGUF file: `tokenizer.chat_template` and `tokenizer.chat_template.NAME`."""
        sources: dict[str, str] = {}
        for key, value in metadata.items():
            if key != _KEY and not key.startswith(f"{_KEY}."):
                continue
            if not isinstance(value, str):
                raise TemplateError(f"{name}: {key} is not a text")
            sources[key[len(_KEY) + 1 :] or _DEFAULT] = value
        return cls(sources, name=name)

    @classmethod
    def from_folder(cls, folder: Path) -> Templates:
        """Those of a Hugging Face folder; files of their own win over the config."""
        config = folder / "tokenizer_config.json"
        sources = _listed(read_json(config).get("chat_template")) if config.is_file() else {}
        old = folder / "chat_template.json"
        if old.is_file():
            sources.update(_listed(read_json(old).get("chat_template")))
        single = folder / "chat_template.jinja"
        if single.is_file():
            sources[_DEFAULT] = _text(single)
        for path in sorted((folder / "additional_chat_templates").glob("*.jinja")):
            sources[path.stem] = _text(path)
        return cls(sources, name=f"{folder.name}: chat template")

    @classmethod
    def from_file(cls, path: Path) -> Templates:
        """The one template in a file."""
        return cls({_DEFAULT: _text(path)}, name=path.name)


def _listed(value: Any) -> dict[str, str]:
    """Templates of a config: one text, or a list of {"name", "template"}."""
    if value is None:
        return {}
    if isinstance(value, str):
        return {_DEFAULT: value}
    sources = {}
    for entry in value if isinstance(value, list) else [None]:
        name = entry.get("name") if isinstance(entry, dict) else None
        source = entry.get("template") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not isinstance(source, str):
            raise TemplateError("tokenizer_config.json: chat_template is neither text nor a list")
        sources[name] = source
    return sources


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise TemplateError(f"{path.name}: more than the {_MAX_BYTES:,} bytes allowed")
        return data.decode("utf-8")
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise TemplateError(f"{path.name}: not UTF-8 at byte {error.start:,}") from None
