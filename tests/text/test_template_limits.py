from __future__ import annotations

import resource
import sys

import pytest

from forwardpass.errors import TemplateError
from forwardpass.text.template import ChatTemplate, Request

DOUBLING = (
    "{%% set ns = namespace(x=%s) %%}{%% for i in range(200) %%}{%% set ns.x = %s %%}{%% endfor %%}"
)
LONG = "{% set long = 'a' * 1000000 %}"

HOSTILE = {
    # loops and calls
    "{% for i in range(10**9) %}{% endfor %}": "Range too big",
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}": "steps",
    "{% for a in range(99999) %}{% for b in range(99999) if false %}{% endfor %}"
    "{% endfor %}": "steps",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}": "nested too deep",
    "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}"
    "{{ f(99) }}": "steps",
    "{% for a in messages recursive %}{{ loop([1, 2]) }}{% endfor %}": "nested too deep",
    "{% macro m() %}{{ caller() }}{% endmacro %}{% macro r() %}{% call m() %}{{ r() }}{% endcall %}"
    "{% endmacro %}{{ r() }}": "nested too deep",
    # growth
    DOUBLING % ("'a'", "ns.x ~ ns.x"): "more text",
    DOUBLING % ("'a'", "ns.x + ns.x"): "more text",
    DOUBLING % ("'a'", "'%s%s' % (ns.x, ns.x)"): "more text",
    DOUBLING % ("'a'", "'{0}{0}'.format(ns.x)"): "more text",
    DOUBLING % ("'a'", "[ns.x, ns.x] | join"): "more text",
    DOUBLING % ("'a'", "''.join([ns.x, ns.x])"): "more text",
    DOUBLING % ("'a'", "ns.x.replace('a', 'aa')"): "more text",
    DOUBLING % ("'a'", "ns.x | replace('a', 'aa')"): "more text",
    DOUBLING % ("['a']", "ns.x + ns.x"): "stopped",
    DOUBLING % ("['a']", "[ns.x, ns.x]"): "stopped",
    DOUBLING % ("('a',)", "(ns.x, ns.x)"): "stopped",
    DOUBLING % ("{'a': 1}", "{'a': ns.x, 'b': ns.x}"): "stopped",
    DOUBLING % ("{'a': 1}", "dict(a=ns.x, b=ns.x)"): "stopped",
    DOUBLING % ("3", "ns.x * ns.x"): "larger number",
    DOUBLING % ("1", "namespace(a=ns.x, b=ns.x)") + "{{ ns.x }}": "has no text",
    "{{ 'a' * 10**9 }}": "more text",
    "{{ 10**9 * 'a' }}": "more text",
    "{{ ['a'] * 10**9 }}": "longer list",
    "{{ 10 ** 1000000 }}": "larger number",
    "{{ 2 ** (10 ** 9) }}": "larger number",
    "{{ 'a' | center(10**9) }}": "stopped",
    "{{ 'a'.center(10**9) }}": "stopped",
    "{{ 'a'.ljust(10**9) }}": "stopped",
    "{{ '1'.zfill(10**9) }}": "stopped",
    "{{ ('\\t' * 100000).expandtabs(tabsize=100000) }}": "stopped",
    "{{ '%1000000000d' % 1 }}": "wider column",
    "{{ '%*d' % (1000000000, 1) }}": "wider column",
    "{{ '%.1000000000f' % 1 }}": "wider column",
    "{{ '%1000000000d' | format(1) }}": "wider column",
    "{{ '{:1000000000}'.format('a') }}": "wider column",
    "{{ '{:{}}'.format('a', 1000000000) }}": "wider column",
    "{{ '{x:1000000000}'.format_map({'x': 1}) }}": "wider column",
    "{{ ('a\\n' * 100000) | indent(9999) }}": "stopped",
    "{{ [1] | batch(10**9, 'x') | list }}": "larger argument",
    "{{ [1] | slice(10**9) | list }}": "larger argument",
    "{{ 1.5 | round(10**9, 'floor') }}": "larger argument",
    "{{ messages | tojson(indent=10**9) }}": "wider indent",
    "{{ messages | tojson(separators=('a' * 1000, ':')) }}": "wider indent",
    LONG + "{{ long.replace('', long) }}": "stopped",
    LONG + "{{ long.join(['a'] * 100000) }}": "stopped",
    LONG + "{{ (['a'] * 100000) | join(long) }}": "stopped",
    LONG + "{{ range(99999) | map('center', 9999) | list | length }}": "stopped",
    LONG + "{% for i in range(99999) %}{{ long }}{% endfor %}": "more text",
    LONG + "{% set x %}{% for i in range(9999) %}{{ long }}{% endfor %}{% endset %}": "more text",
    LONG
    + "{% filter upper %}{% for i in range(9999) %}{{ long }}{% endfor %}{% endfilter %}": "more",
    LONG + "{% macro m() %}{{ long }}{{ long }}{% endmacro %}{% for i in range(999) %}"
    "{% set x = m() %}{% endfor %}": "more text",
    LONG + "{% for i in range(99999) %}{% set x = long[1:] %}{% endfor %}": "more text",
    LONG + "{% for i in range(99999) %}{% if long in long %}{% endif %}{% endfor %}": "stopped",
    LONG + "{{ [[long] * 1000] * 1000 }}": "stopped",
    LONG + "{{ ([long] * 1000) | string }}": "larger value",
    LONG + "{{ '%s' % [[long] * 1000] }}": "larger value",
    "{% for i in range(99999) %}" + "x" * 10_000 + "{% endfor %}": "more text",
    # reaching out of the sandbox
    "{{ ''.__class__ }}": "'__class__' is not for templates",
    "{{ ''['__class__'] }}": "'__class__' is not for templates",
    "{{ '' | attr('__class__') }}": "'__class__' is not for templates",
    "{{ '{0.__class__.__mro__}'.format('') }}": "'__class__' is not for templates",
    "{{ ('{0.__class__}' | attr('format'))('') }}": "not for templates",
    "{{ [messages] | map(attribute='__class__') | list }}": "'__class__' is not for templates",
    "{{ messages.__init__.__globals__ }}": "'__init__' is not for templates",
    "{{ raise_exception.__globals__ }}": "'__globals__' is not for templates",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}": "'__init__' is not for templates",
    "{{ namespace.__init__ }}": "'__init__' is not for templates",
    "{% set x = namespace() %}{% set x.__class__ = 1 %}": "begins with an underscore",
    "{{ namespace(__class__=1) }}": "begins with an underscore",
    "{{ (1).to_bytes(10**9, 'big') }}": "'to_bytes' is not for templates",
    "{{ self }}": "has no text",
    "{{ lipsum() }}": "'lipsum' is undefined",
    "{{ strftime_now('%Y' * 1000) }}": "longer time format",
    # shape
    "{% extends 'x' %}": "extends is not for chat templates",
    "{% import 'x' as y %}": "import is not for chat templates",
    "{{ " + " + ".join("1" * 1000) + " }}": "nested deeper than 200",
    "{{ " + "[" * 3000 + "]" * 3000 + " }}": "nested too deep",
    "{% if 1 %}" * 3000 + "{% endif %}" * 3000: "nested too deep",
    "x" * 70_000: "more than the 65,536 allowed",
}


@pytest.mark.parametrize("source", HOSTILE, ids=lambda source: source[-60:])
def test_a_hostile_template_is_stopped(source: str) -> None:
    with pytest.raises(TemplateError) as caught:
        ChatTemplate(source).render(Request(({"role": "user", "content": "hi"},)))
    assert HOSTILE[source] in str(caught.value)
    assert len(str(caught.value)) < 2100


@pytest.mark.skipif(sys.platform == "win32", reason="the platform does not tell")
def test_hostile_templates_take_little_memory() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for source in HOSTILE:
        with pytest.raises(TemplateError):
            ChatTemplate(source).render(Request(({"role": "user", "content": "hi"},)))
    kilobytes = 1024 if sys.platform == "darwin" else 1
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / kilobytes
    assert grown < 200_000


def test_a_long_conversation_is_within_the_limits() -> None:
    source = (
        "{% set ns = namespace(text='') %}{% for m in messages %}"
        "{% set ns.text = m.content | trim %}{{ '<' ~ m.role ~ '>' + ns.text + m.content[1:] }}"
        "{{ m | tojson }}{% endfor %}{{ messages | tojson(indent=4) }}"
    )
    messages = [{"role": "user", "content": f"{n} " + "word " * 400} for n in range(500)]
    assert len(ChatTemplate(source).render(Request(messages))) > 4_000_000
