"""A page of HTML that needs nothing beside itself: no script and no request, light, dark, on paper.

`element` escapes every text that is not `Html` already, so that names out of files stay names.
"""

from __future__ import annotations

import html
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from forwardpass._version import __version__, commit

STYLE = Path(__file__).with_name("page.css")
CONVENTIONS = (
    "A multiply-add is 2 FLOP; FLOP/s is a rate. k, M, G, T and P are 10³, 10⁶, 10⁹, 10¹² and "
    "10¹⁵, so that GB is 10⁹ bytes. docs/accounting.md has the rule of every op."
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_EMPTY = {"meta", "br"}  # elements without an end


class Html(str):
    """Markup; any other `str` is text."""

    __slots__ = ()


def escaped(text: str) -> Html:
    """The text as markup; what does not print is written out (`\\x1b`), half characters too."""
    if isinstance(text, Html):
        return text
    shown = (c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return Html(html.escape("".join(shown)))


def element(name: str, /, *inside: str, **attributes: str | None) -> Html:
    """`<name …>inside</name>`; `class_` is `class`, other `_` are `-`, attributes of None go."""
    words = [name]
    for key, value in attributes.items():
        if value is not None:
            words.append(f'{key.rstrip("_").replace("_", "-")}="{escaped(value)}"')
    start = f"<{' '.join(words)}>"
    if name in _EMPTY:
        return Html(start)
    return Html(f"{start}{''.join(map(escaped, inside))}</{name}>")


@dataclass(frozen=True)
class Group:
    """Rows of a table that belong together, below a heading of their own where `title` is given.

    `inner`: they are part of what the group before them is about.
    """

    rows: Sequence[Sequence[str]]
    title: str | None = None
    inner: bool = False


def table(
    caption: str,
    head: Sequence[str],
    groups: Iterable[Group],
    words: Collection[int] = (),
    heard: bool = False,
    scrolls: bool = True,
) -> Html:
    """A table; the first cell of a row is its heading.

    Columns are numbers, at the right, but the first and those in `words`. A caption that is only
    `heard` stands as a heading above the table already. A table that fits every screen need not
    scroll: then it is no stop for the keyboard.
    """

    def kind(column: int) -> str | None:
        return None if column == 0 or column in words else "number"

    def row(cells: Sequence[str]) -> Html:
        first = element("th", cells[0], scope="row")
        rest = (element("td", cell, class_=kind(i)) for i, cell in enumerate(cells[1:], 1))
        return element("tr", first, *rest)

    def body(group: Group) -> Html:
        rows = [row(cells) for cells in group.rows]
        if group.title is not None:
            title = element("th", group.title, scope="rowgroup", colspan=str(len(head)))
            rows.insert(0, element("tr", title, class_="group"))
        return element("tbody", *rows, class_="inner" if group.inner else None)

    titles = (element("th", cell, scope="col", class_=kind(i)) for i, cell in enumerate(head))
    whole = element(
        "table",
        element("caption", caption, class_="heard" if heard else None),
        element("thead", element("tr", *titles)),
        *map(body, groups),
    )
    if not scrolls:
        return whole
    return element(
        "div",
        whole,
        class_="scroll",
        role="region",
        aria_label=caption,
        tabindex="0",  # so that keys can move what is wider than the screen
    )


def bar(share: float, kind: str = "bar", fill: str = "first") -> Html:
    """A share from 0 to 1 as a bar; the text beside it says the same, so that it is not read.

    `kind` and `fill` are classes of the style.
    """
    return element(
        "svg",
        _block(0, 100, "track"),
        _block(0, 100 * min(max(share, 0.0), 1.0), fill),
        class_=kind,
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def stacked(parts: Sequence[tuple[str, float]], about: str) -> Html:
    """Shares of one whole behind each other; each part is a class of the style and its share."""
    blocks, start = [_block(0, 100, "track")], 0.0
    for kind, share in parts:
        blocks.append(_block(start, 100 * share, kind))
        start += 100 * share
    return element(
        "svg",
        *blocks,
        class_="stacked",
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        role="img",
        aria_label=about,
    )


def _block(start: float, width: float, kind: str) -> Html:
    return element("rect", x=f"{start:.3f}", width=f"{width:.3f}", height="10", class_=kind)


def cards(pairs: Iterable[tuple[str, str, str]]) -> Html:
    """The figures that matter most: what it is, the figure, and a word on it."""
    return element(
        "dl",
        *(
            element("div", element("dt", name), element("dd", figure, element("small", remark)))
            for name, figure, remark in pairs
        ),
        class_="cards",
    )


def section(title: str, *inside: str, level: int = 2) -> Html:
    """A part of the page below its heading; level 3 is part of the section before it."""
    return element("section", element(f"h{level}", title), *inside)


def paragraphs(texts: Iterable[str]) -> Html:
    return Html("".join(element("p", text) for text in texts))


@dataclass(frozen=True)
class Document:
    """A whole page.

    `title` names it in a list of windows, `heading` and `lead` stand at its top; `command` is the
    line that made it. `conventions` are a word on the figures, `style` a file of further rules.
    """

    title: str
    heading: str
    lead: Sequence[str]
    body: Sequence[Html]
    command: str
    conventions: str = CONVENTIONS
    style: Path | None = None

    def html(self) -> str:
        """The file's text."""
        made = f"forwardpass {__version__}, commit {commit() or 'unknown'}"
        top = element("header", element("h1", self.heading), paragraphs(self.lead))
        bottom = element(
            "footer",
            element("p", self.conventions),
            element("p", "Made by ", element("code", self.command), f" with {made}."),
        )
        head = element(
            "head",
            element("meta", charset="utf-8"),
            element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", name="color-scheme", content="light dark"),
            element("meta", name="generator", content=made),
            element("title", self.title),
            element("style", Html("\n" + self._rules())),
        )
        body = element("body", top, element("main", *self.body), bottom)
        # One line for each part, so that a difference between two pages can be read.
        whole = element("html", head, body, lang="en")
        for name in ("tr", "p", "li", "h1", "h2", "h3", "section", "caption", "head"):
            whole = Html(whole.replace(f"</{name}>", f"</{name}>\n"))
        return f"<!doctype html>\n{whole}\n"

    def _rules(self) -> str:
        files = [STYLE] if self.style is None else [STYLE, self.style]
        return "\n".join(file.read_text("utf-8") for file in files)
