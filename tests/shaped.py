"""Schemas, tools and templates for tests of answers that have a shape."""

from __future__ import annotations

from typing import Any

NOTE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 12},
        "pages": {"type": "integer", "minimum": 1, "maximum": 900},
        "kind": {"enum": ["novel", "poem", "play"]},
    },
    "required": ["title", "pages", "kind"],
    "additionalProperties": False,
}
LEND: dict[str, Any] = {"name": "lend_book", "description": "Lends.", "input_schema": NOTE}
RENEW: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "renew",
        "parameters": {
            "type": "object",
            "properties": {"days": {"enum": [7, 14]}},
            "required": ["days"],
            "additionalProperties": False,
        },
    },
}
PLAIN = """\
{%- for m in messages %}
    {{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""
CALLING = """\
{%- if tools %}{{ '<|im_start|>system\\n' + tools | tojson + '<|im_end|>\\n' }}{% endif %}
{%- for m in messages %}
    {{- '<|im_start|>' + m.role + '\\n' }}
    {%- if m.tool_calls %}
        {{- m.content }}
        {%- if m.content %}{{ '\\n' }}{% endif %}
        {%- for c in m.tool_calls %}{% set f = c.function %}
            {{- '\\n' if not loop.first }}{{ '<tool_call>\\n{"name": "' + f.name }}
            {{- '", "arguments": ' + f.arguments | tojson + '}\\n</tool_call>' }}
        {%- endfor %}
    {%- else %}{{ m.content }}{% endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""
SEEDS = range(8)
WILD: dict[str, Any] = {"temperature": 3.0}
