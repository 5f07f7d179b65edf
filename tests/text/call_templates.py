"""Small templates of our own that show calls in the ways that models have, for tests of calls."""

from __future__ import annotations

_TURNS = """\
{%- if tools %}{{ '<|begin|>' + tools | tojson + '\\n' }}{% endif %}
{%- for m in messages %}
    {{- '<|im_start|>' + m.role + '\\n' }}
    {%- if m.tool_calls %}
        {{- m.content }}
        {%- if m.content %}{{ '\\n' }}{% endif %}
        CALLS
    {%- else %}{{ m.content }}{% endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\nTHINK' }}{% endif %}
"""

_HERMES = """\
{%- for c in m.tool_calls %}{% set f = c.function %}
    {{- '\\n' if not loop.first }}{{ '<tool_call>\\n{"name": "' + f.name + '", "arguments": ' }}
    {{- f.arguments | tojson }}{{ '}\\n</tool_call>' }}
{%- endfor %}"""

_WITH_IDS = """\
{{- '[TOOL_CALLS] [' }}
{%- for c in m.tool_calls %}
    {{- '{"name": "' + c.function.name + '", "arguments": ' + c.function.arguments | tojson }}
    {{- ', "id": "' + c.id + '"}' }}{{ ', ' if not loop.last }}
{%- endfor %}{{ ']' }}"""

_COMPACT = """\
{%- for c in m.tool_calls %}
    {{- '<call:' + c.function.name + '>' }}
    {{- c.function.arguments | tojson(separators=(',', ':')) }}{{ '</call>' }}
{%- endfor %}"""

_ONE = """\
{%- if m.tool_calls | length > 1 %}{{ raise_exception('one call only') }}{% endif %}
{%- set f = m.tool_calls[0].function %}
{{- '{"name": "' + f.name + '", "parameters": ' + f.arguments | tojson + '}' }}"""

_XML = """\
{%- for c in m.tool_calls %}
    {{- '<function=' + c.function.name + '>' }}
    {%- for k, v in c.function.arguments | items %}
        {{- '<parameter=' + k + '>' }}{{ v }}{{ '</parameter>' }}
    {%- endfor %}{{ '</function>' }}
{%- endfor %}"""


def _made(calls: str, think: str = "") -> str:
    return _TURNS.replace("CALLS", calls).replace("THINK", think)


LISTLESS = """\
{%- for m in messages %}
    {%- if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}
    {{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
{%- endfor %}"""

# Name → template, and the name of the form that it is recognised as (None: refused).
OWN: dict[str, tuple[str, str | None]] = {
    "hermes": (_made(_HERMES), "hermes"),
    "hermes-thinking": (_made(_HERMES, "<think>\\n") + "{# </think> #}", "hermes"),
    "with-ids": (_made(_WITH_IDS), "mistral"),
    "compact": (_made(_COMPACT), "learned"),
    "one": (_made(_ONE), "llama"),
    "xml": (_made(_XML), None),
    "listless": (LISTLESS, "plain"),
}
