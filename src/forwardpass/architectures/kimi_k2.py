"""Kimi K2.

The same as `deepseek_v3.py` under a name of its own: 384 experts in one group, 64 heads, one dense
layer, all of which the config says.

Source: arXiv:2507.20534 section 2.3; the model's configuration_deepseek.py.
"""

from __future__ import annotations

from dataclasses import replace

from forwardpass.architectures.deepseek_v3 import FAMILY as DEEPSEEK_V3

FAMILY = replace(DEEPSEEK_V3, model_type="kimi_k2")
