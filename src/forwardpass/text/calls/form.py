"""CallForm: how a model writes its calls of tools, as data.

An answer with calls is, from left to right:

    reasoning   free text   before   call   between   call   …   after   end

`before` and `after` stand once, `between` stands between two calls. A call is a sequence of
pieces with one `Name` and one `Arguments` in it. Quotes and blanks around both are literal text:
`{"name": "`, name, `", "arguments": `, arguments, `}`. A `Control` is a text that is one id of
the tokenizer, and is written with that id; a `Literal` may be cut into tokens in any way.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from forwardpass.text.calls.pieces import (
    FixedPieces,
    Pieces,
    Written,
    bound,
    bound_fixed,
    written,
)


@dataclass(frozen=True, slots=True)
class Thinking:
    """What a model puts around its reasoning, which comes first in an answer."""

    begin: str
    end: str

    def opened_by(self, prompt: str) -> bool:
        """Whether the rendered prompt ends inside the reasoning, so that the answer goes on there.

        A prompt that ends with `begin` and `end` asked for no reasoning; after any other the
        model decides whether it writes `begin`.
        """
        return prompt.rstrip().endswith(self.begin.rstrip())


@dataclass(frozen=True, slots=True)
class CallForm:
    """How a model writes its calls. The order of the parts is in this module's docstring.

    `marker` begins every section of calls: free text ends where it begins. `text_before`: free
    text may stand before the calls; otherwise an answer is either calls or text, and how it
    begins decides. `parallel`: several calls may follow each other in one answer.
    `end`: control tokens that the template puts after calls; one of them, or any id that ends an
    answer, ends the turn. `text` opens free text where a model marks that too; `dropped` is
    other markup around free text, which reading leaves out.
    `also`: other ways in which models write one call, marker included; read, never asked for.
    `separators`: those of `json.dumps` with which the template itself writes arguments.
    `prompted`: the template knows no tools, so the prompt describes this form in words.
    """

    name: str
    call: Pieces
    marker: FixedPieces
    before: FixedPieces = ()
    between: FixedPieces = ()
    after: FixedPieces = ()
    parallel: bool = False
    text_before: bool = False
    end: tuple[str, ...] = ()
    text: FixedPieces = ()
    dropped: tuple[str, ...] = ()
    also: tuple[Pieces, ...] = ()
    separators: tuple[str, str] = (", ", ": ")
    thinking: Thinking | None = None
    prompted: bool = False

    def write(self, calls: Sequence[Written]) -> str:
        """The text of the calls, from `before` to `after`."""
        between = written(self.between)
        section = between.join(written(self.call, call) for call in calls)
        return written(self.before) + section + written(self.after)

    def arguments_text(self, arguments: object) -> str:
        """Arguments as the template writes them."""
        return json.dumps(arguments, ensure_ascii=False, separators=self.separators)

    def bound_to(self, is_one_id: Callable[[str], bool]) -> CallForm:
        """The same form with every mark a `Control` exactly where it is one id."""
        return replace(
            self,
            call=bound(self.call, is_one_id),
            marker=bound_fixed(self.marker, is_one_id),
            before=bound_fixed(self.before, is_one_id),
            between=bound_fixed(self.between, is_one_id),
            after=bound_fixed(self.after, is_one_id),
            text=bound_fixed(self.text, is_one_id),
            also=tuple(bound(pieces, is_one_id) for pieces in self.also),
        )
