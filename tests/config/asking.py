"""Configs of the tiny models with some keys changed: read, or refused."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from backends.tiny import CONFIGS
from forwardpass.config import ModelConfig
from forwardpass.describe import describe_config
from forwardpass.errors import ConfigError


def config(name: str, **changes: object) -> ModelConfig:
    return accepting((), name, **changes)


def accepting(keys: Iterable[str], name: str, **changes: object) -> ModelConfig:
    return describe_config(name, {**CONFIGS[name], **changes}, accept_unknown=keys).config


def refusal(name: str, **changes: object) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        config(name, **changes)
    return caught.value
