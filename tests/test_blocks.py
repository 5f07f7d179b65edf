"""The judge of the documents is itself judged."""

from __future__ import annotations

import pytest

from blocks import Command, bare_machine_commands, blocks, difference, same_line

PAGE = """\
<!-- run: bare machine -->
```console
$ install && use
ready
```

```console
$ first \\
    --long
one
two

$ second <<'END'
> text
> END
```

    <!-- run: exit status 2 -->
    ```console
    $ third
    error: no
    ```
"""


def test_a_block_gives_its_commands_with_the_lines_that_follow() -> None:
    found = [command for block in blocks(PAGE) for command in block.commands()]
    assert [command.text for command in found] == [
        "install && use",
        "first \\\n    --long",
        "second <<'END'\ntext\nEND",
        "third",
    ]
    assert [command.expected for command in found] == [
        ("ready",),
        ("one", "two"),
        (),
        ("error: no",),
    ]
    assert [command.line for command in found] == [3, 8, 13, 20]


def test_the_comment_before_a_block_says_how_it_runs() -> None:
    assert [block.how for block in blocks(PAGE)] == ["bare machine", None, "exit status 2"]
    assert [block.exit_status for block in blocks(PAGE)] == [0, 0, 2]
    assert [command.text for command in bare_machine_commands(PAGE)] == ["install && use"]


def test_output_before_the_first_command_is_refused() -> None:
    (block,) = blocks("```console\nstray\n$ command\n```\n")
    with pytest.raises(ValueError, match="line 1: a console block starts with a command"):
        block.commands()


def test_a_block_that_never_ends_is_refused() -> None:
    with pytest.raises(ValueError, match="line 2: the block never ends"):
        list(blocks("text\n```console\n$ command\n"))


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ("11 passes in ~0.05 s", "11 passes in 0.49 s"),
        ("11 passes in ~0.05 s", "11 passes in 0.005 s"),
        ("  ~1,300   ~65 %", "    130     7.1 %"),
        ("~16   expected 14.1", "9 expected 14.1"),
        ("other   ~0.00 ms", "other    0.07 ms"),
        ("~31 MB/s", "~100 MB/s"),
        ("native (avx512-vnni), ~2 threads", "native (portable), 1 threads"),
        ("native (avx512-vnni)", "native (avx2)"),
        ("native (avx512-vnni)", "native (avx512-vnni)"),
    ],
)
def test_a_measured_figure_may_be_off_by_a_factor_of_ten_and_a_level_be_another(
    expected: str, printed: str
) -> None:
    assert same_line(expected, printed)


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ("11 passes in ~0.05 s", "12 passes in 0.05 s"),
        ("11 passes in ~0.05 s", "11 passes in 0.51 s"),
        ("11 passes in ~0.05 s", "11 passes in  s"),
        ("11 passes in ~0.05 s", "11 passes in 0.05 ms"),
        ("11 passes in ~0.05 s", "11 passes in0.05 s"),
        ("other   ~0.00 ms", "other    0.11 ms"),
        ("12.19 GFLOP", "12.20 GFLOP"),
        ("a  b", "a b"),
        ("native (avx512-vnni)", "native (sse2)"),
        ("native (avx512-vnni)", "native ()"),
        ("native (avx2)", "native (portable)"),
    ],
)
def test_everything_else_must_be_exact(expected: str, printed: str) -> None:
    assert not same_line(expected, printed)


def test_an_ellipsis_stands_for_any_lines_and_none() -> None:
    assert difference(["a", "…", "z"], "a\nz\n") is None
    assert difference(["a", "…", "z"], "a\nb\nc\nz  \n") is None
    assert difference(["…"], "") is None
    assert difference(["a", "…", "z"], "a\nb\n") is not None
    assert difference(["a", "…", "m", "…", "z"], "a\nm\nb\nm\nz\n") is None
    assert difference(["a", "…", "m", "z"], "a\nm\nb\nz\n") is not None


def test_a_deviation_names_the_line() -> None:
    assert difference(["a", "b"], "a\nc\n") == "line 2\n  expected: b\n  printed:  c"
    assert difference(["a", "b"], "a\n") == "ends too early; expected next: b"
    assert difference([], "stray\n") is not None


WITH_AND_WITHOUT = """\
<!-- run: bare machine -->
```console
$ use
native, 2 passes
```

<!-- run: without a compiler -->
```text
reference, 2 passes
no compiler
```
"""


def test_a_command_may_print_what_is_shown_for_a_machine_without_a_compiler() -> None:
    (command,) = bare_machine_commands(WITH_AND_WITHOUT)
    assert command == Command(
        "use", ("native, 2 passes",), 3, otherwise=("reference, 2 passes", "no compiler")
    )
    assert command.deviation("native, 2 passes\n") is None
    assert command.deviation("reference, 2 passes\nno compiler\n") is None


@pytest.mark.parametrize(
    "printed",
    [
        "reference, 2 passes\n",
        "reference, 2 passes\nit did not build\n",
        "native, 2 passes\nno compiler\n",
        "native, 3 passes\n",
    ],
)
def test_neither_is_a_mixture_of_both(printed: str) -> None:
    (command,) = bare_machine_commands(WITH_AND_WITHOUT)
    assert "without a compiler: " in (command.deviation(printed) or "")


def test_what_is_shown_without_a_compiler_belongs_to_a_command() -> None:
    with pytest.raises(ValueError, match="line 2: no bare-machine command stands before it"):
        bare_machine_commands("<!-- run: without a compiler -->\n```text\nx\n```\n")
