"""What an account says of the settings: in lines that can be read, and what has no effect."""

from __future__ import annotations

import re
from pathlib import Path

from cli.running import Run


def test_settings_that_do_not_fit_into_a_line_are_broken_behind_commas(
    run: Run, tiny: Path
) -> None:
    breakers = [part for i in range(20) for part in ("--dry-sequence-breaker", f"ends, here {i}")]
    said = run.ok("run", tiny, "hi", "--max-tokens", 1, "--temperature", 1, "--seed", 1,
                  "--dry-multiplier", 1, *breakers, "--dry-base", 2,
                  "--stages", "top_k,temperature").err  # fmt: skip
    lines = said[said.index("temperature 1 (request)") :].splitlines()
    end = next(i for i, line in enumerate(lines) if "thread" in line)
    first, *more = lines[: end + 1]
    assert len(more) > 2
    assert max(map(len, (first, *more))) <= 100
    assert all(line.endswith(",") for line in (first, *more[:-1]))
    assert all(re.match("  [^ ]", line) for line in more)
    assert "stages top_k,temperature (request)" in first
    shown = first + "".join(line[1:] if line[2].isalpha() else line[2:] for line in more)
    assert ",".join(f"'ends, here {i}'" for i in range(20)) in shown


def test_stages_that_adjust_scores_are_shown_where_the_request_orders_them(
    run: Run, tiny: Path
) -> None:
    said = run.ok("run", tiny, "hi", "--max-tokens", 1, "--temperature", 1, "--seed", 1,
                  "--stages", "dry,logit_bias,temperature").err  # fmt: skip
    assert "stages dry,logit_bias,mask,temperature (request)" in said


def test_a_setting_whose_switch_is_off_is_named(run: Run, tiny: Path) -> None:
    asked = ("run", tiny, "hi", "--max-tokens", 1, "--temperature", 1)
    off = ("--xtc-threshold", 0.3, "--dry-sequence-breaker", "x", "--penalty-last-n", 4)
    assert (
        "without effect: xtc-threshold (xtc-probability is off), penalty-last-n "
        "(repetition-penalty, frequency-penalty and presence-penalty are off), "
        "dry-sequence-breakers (dry-multiplier is off)\n"
    ) in run.ok(*asked, *off).err
    on = ("--xtc-probability", 1, "--dry-multiplier", 1, "--presence-penalty", 1)
    assert "without effect" not in run.ok(*asked, *off, *on).err
