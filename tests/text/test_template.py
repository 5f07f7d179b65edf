from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from forwardpass.errors import RequestError, TemplateError
from forwardpass.text.template import ChatTemplate, Request

HELLO = ({"role": "user", "content": "hello"},)


def rendered(source: str, *messages: dict[str, Any], **options: Any) -> str:
    return ChatTemplate(source).render(Request(messages or HELLO, **options))


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% if true %}\n  {% if true %}\nx\n  {% endif %}\n{% endif %}\n", "x\n"),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("a{% generation %}{{ messages[0].content }}{% endgeneration %}b", "ahellob"),
        ("{{ {'b': '<é>', 'a': 1} | tojson }}", '{"b": "<é>", "a": 1}'),
        ("{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }}", '{"a": 2, "b": 1}'),
        ("{{ [1, 'é'] | tojson(ensure_ascii=true) }}", '[1, "\\u00e9"]'),
        ("{{ [1, 2] | tojson(separators=(',', ':')) }}", "[1,2]"),
        ("{{ [1] | tojson(indent=2) }}", "[\n  1\n]"),
        ("{{ strftime_now('%d %b %Y') }}", "26 Jul 2024"),
        ("{{ bos_token }}{{ eos_token }}", "<s>"),
        ("{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}", "TrueTrueTrue"),
        ("{% set ns = namespace(n=0) %}{% set ns.n = ns.n + 2 %}{{ ns.n }}", "2"),
        ("{{ dict(a=1) | tojson }}", '{"a": 1}'),
        ("{{ messages[::-1][0].content ~ 1 ~ none }}", "hello1None"),
        ("{{ '%s-%d' % ('a', 3) }}{{ '{}'.format('b') }}{{ '%s' | format('c') }}", "a-3bc"),
        ("{{ 'a,b'.split(',') | join('+') }}{{ 'x' * 3 }}{{ [1] * 2 }}", "a+bxxx[1, 1]"),
        ("{{ messages | map(attribute='role') | list }}", "['user']"),
        ("{{ 'abc'[1:] }}{{ 'b' in 'abc' }}{{ 2 ** 10 }}", "bcTrue1024"),
        ("{{ '<b>' }}{{ '<b>' | e }}", "<b>&lt;b&gt;"),
        ("{% macro m(x) %}[{{ x }}]{% endmacro %}{{ m('a') ~ m(1) }}", "[a][1]"),
        ("{% filter upper %}a{{ 'b' }}{% endfilter %}{% set x %}c{% endset %}{{ x }}", "ABc"),
        ("{% for a, b in {'k': 'v'}.items() if a %}{{ loop.length }}{{ b }}{% endfor %}", "1v"),
    ],
)
def test_templates_follow_the_rules_of_the_hub(source: str, text: str) -> None:
    options = {"special_tokens": {"bos_token": "<s>"}, "now": lambda: datetime(2024, 7, 26)}
    assert rendered(source, **options) == text


def test_what_a_template_raises_is_the_error() -> None:
    with pytest.raises(TemplateError, match=r"refuses the conversation: roles must alternate$"):
        rendered("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize(
    ("source", "line", "says"),
    [
        ("a\n{% if %}", 2, "Expected an expression"),
        ("a\n\n{{ nothing.at_all }}", 3, "'nothing' is undefined"),
        ("\n{{ 1 / 0 }}", 2, "division by zero"),
        ("{{ 'a' | pprint }}", 1, "No filter named 'pprint'"),
        ("\n{% include 'other' %}", 2, "include is not for chat templates"),
    ],
)
def test_an_error_names_the_line(source: str, line: int, says: str) -> None:
    with pytest.raises(TemplateError) as caught:
        rendered(source)
    assert f"line {line}" in str(caught.value)
    assert says in str(caught.value)


SWITCH = """
{%- if enable_thinking is not defined %}{% set enable_thinking = true %}{% endif %}
{%- for message in messages %}{% set content = message.content %}{{ content }}{% endfor %}
{%- if style | default('') %}{{ style }}{% endif %}{% if enable_thinking %}<think>{% endif %}
"""


@pytest.mark.parametrize("half", ["'\\ud800'", "'\\ud83d' ~ '\\ude00'", "['\\udfff'] | tojson"])
def test_half_a_surrogate_pair_that_a_template_writes_is_its_error(half: str) -> None:
    with pytest.raises(TemplateError, match=r"^chat template: half a surrogate pair at character"):
        rendered(f"x{{{{ {half} }}}}x")
    with pytest.raises(TemplateError) as caught:
        rendered(f"{{{{ raise_exception({half}) }}}}")
    assert str(caught.value).isascii()


def test_the_arguments_are_what_a_template_reads_before_it_sets_it() -> None:
    template = ChatTemplate(SWITCH, name="m")
    assert template.arguments == ("enable_thinking", "style")
    assert template.thinking_arguments == ("enable_thinking",)
    assert template.reads("messages")
    assert not template.reads("tools")


def test_an_argument_that_is_never_read_is_refused_with_what_is() -> None:
    template = ChatTemplate(SWITCH, name="m")
    template.check_arguments({"style": "brief"})
    with pytest.raises(RequestError) as caught:
        template.check_arguments({"enable_thinkin": True})
    assert str(caught.value).splitlines() == [
        "m never reads the argument 'enable_thinkin'  (did you mean enable_thinking?)",
        "  it reads: enable_thinking, style",
    ]


def test_values_of_a_template_cannot_be_changed_by_it() -> None:
    for source in ("{{ messages.append(1) }}", "{% set x = messages.pop() %}"):
        with pytest.raises(TemplateError, match="is not for templates"):
            rendered(source)


def test_one_template_renders_many_conversations() -> None:
    template = ChatTemplate("{{ messages[0].content }}")
    for text in ("a", "b", "\U00100000"):
        assert template.render(Request(({"role": "user", "content": text},))) == text
