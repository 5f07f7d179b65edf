"""A tiny model in each block type of GGUF, written by the official package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from forwardpass.dtypes import DTYPES
from forwardpass.formats import blocks
from forwardpass.work.summary import count_model
from oracles import gguf_models
from oracles.families import Case, random_model
from oracles.loading import described
from oracles.packed_models import SIZES, check_logits

_BLOCKS = (
    *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
    *("IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0", "MXFP4"),
)


@pytest.mark.parametrize("name", _BLOCKS)
def test_a_gguf_of_each_block_type_gives_the_logits_of_what_the_official_package_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    wide = {"hidden_size": 256, "head_dim": 64}
    model = random_model(Case("blocks", "llama", {**SIZES, **wide}))
    monkeypatch.setattr(gguf_models, "quantize", quantized_or_random)
    kind = gguf.GGMLQuantizationType[name]
    stored = gguf_models.write_gguf_model(model, tmp_path / "model.gguf", kind)
    model.load_state_dict(stored, strict=False)
    check_logits(tmp_path / "model.gguf", model)
    counted = count_model(described(tmp_path / "model.gguf"))
    assert name.lower() in counted.bytes.dtype


def quantized_or_random(values: Any, kind: gguf.GGMLQuantizationType) -> Any:
    """The official package's blocks; random ones of that size where it can only read them."""
    try:
        return gguf.quants.quantize(values, kind)
    except NotImplementedError:
        pass
    rng = np.random.default_rng(values.size)
    dtype = DTYPES[kind.name.lower()]
    layout, _ = blocks.DECODERS[dtype.name]
    scales = [field for field in layout.names or () if layout[field] == np.dtype("<f2")]
    data = rng.integers(0, 256, (len(values), dtype.nbytes(values.shape[1])), dtype=np.uint8)
    for field in scales:
        data.view(layout)[field] = rng.uniform(1e-3, 2e-3, data.view(layout).shape)
    spread = float(np.std(gguf.quants.dequantize(data, kind)))
    for field in scales:
        data.view(layout)[field] *= np.float16(0.08 / spread)
    return data
