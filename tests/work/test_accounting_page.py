from __future__ import annotations

import re
from pathlib import Path

from forwardpass.graph.ops import OPS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "accounting.md"


def test_the_page_states_the_rule_of_every_op_that_counts_as_other() -> None:
    stated: dict[str, int] = {}
    for line in PAGE.read_text("utf-8").splitlines():
        row = re.fullmatch(r"\| ((?:`\w+`(?:, )?)+) \| (\d+) \| .* \|", line)
        if row is not None:
            stated |= dict.fromkeys(re.findall(r"`(\w+)`", row[1]), int(row[2]))
    sizes = dict.fromkeys((*"nhedk", "elements", "dims", "pairs"), 1)
    # The softmax of a sink is one more pair for each row.
    rules = {
        name: op.other(**sizes | ({"n": 0} if "sink" in name else {})) for name, op in OPS.items()
    }
    assert stated == {name: flop for name, flop in rules.items() if flop}
