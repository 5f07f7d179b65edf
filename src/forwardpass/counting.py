"""`count`: what a model is and does, from its config or its files' headers alone."""

from __future__ import annotations

import os
from collections.abc import Sequence

from forwardpass import hub
from forwardpass.errors import RequestError
from forwardpass.hub.paths import reference_text
from forwardpass.opening import open_headers
from forwardpass.text.messages import is_list
from forwardpass.work.summary import Asked, Count, count_model, count_tensors


def count(
    reference: str | os.PathLike[str],
    *,
    visible: int | Sequence[int] = (),
    prompt: int | None = None,
    answer: int | None = None,
    dtype: str | None = None,
    kv_type: str = "bf16",
    accept_unknown: Sequence[str] = (),
) -> Count:
    """Parameters, bytes, FLOP and cache of a model; its fields are the keys of `count --json`.

    `visible`: contexts to count one token at; `prompt` and `answer`: tokens of a request to count;
    `dtype`: the type to count bytes in. No weight is read.
    """
    if not (isinstance(visible, int) or is_list(visible)):
        raise RequestError(f"visible = {visible!r:.60}: wanted a number of tokens, or several")
    contexts = (visible,) if isinstance(visible, int) else tuple(visible)
    asked = Asked(contexts, prompt, answer, dtype, kv_type)
    settings = hub.settings(os.environ)
    with open_headers(reference_text(reference), settings, accept_unknown=accept_unknown) as opened:
        if opened.description is not None:
            return count_model(opened.description, asked)
        assert opened.file is not None  # without a description there is a file
        return count_tensors(opened.label, opened.file)
