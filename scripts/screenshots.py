"""Pictures of a page as Chromium shows it, at 1280 and 390 pixels, light and dark.

    python scripts/screenshots.py page.html pictures/

Beside taking pictures it holds the page to what it promises, and ends with status 1 where it
fails: no request but the page itself, nothing wider than the screen, no message on the console,
and every link and region that scrolls within reach of the Tab key, in the page's order.

Needs `chromium` (or what --chromium names) on the path, and nothing else: the browser is spoken to
over a pair of pipes (Chrome DevTools Protocol, `--remote-debugging-pipe`).
"""

from __future__ import annotations

import argparse
import base64
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WIDTHS = (1280, 390)
SCHEMES = ("light", "dark")
_TALLEST = 16_000  # pixels of a picture; Chromium draws no more at once
_FLAGS = (
    *("--headless", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars"),
)
_CALM = {"name": "prefers-reduced-motion", "value": "reduce"}  # nothing is under way in a picture
# What takes the focus, in the page's order; what is folded away does not.
_STOPS = """
[...document.querySelectorAll('a[href], summary, [tabindex="0"]')]
  .filter(e => e.checkVisibility() && !e.closest('details:not([open]) > :not(summary)'))
  .map(e => e.outerHTML.slice(0, 120))
"""
_FRAMES = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))"
_FOCUSED = "document.activeElement === document.body ? null : document.activeElement.outerHTML"


class Browser:
    """A page of Chromium, spoken to over a pair of pipes."""

    def __init__(self, reading: int, writing: int) -> None:
        self._from = os.fdopen(reading, "rb", buffering=0)
        self._to = os.fdopen(writing, "wb", buffering=0)
        self._numbers = itertools.count(1)
        self._rest = b""
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self("Target.createTarget", url="about:blank")["targetId"]
        found = self("Target.attachToTarget", targetId=target, flatten=True)
        self._session = found["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self(f"{domain}.enable")

    def __call__(self, method: str, /, **parameters: Any) -> dict[str, Any]:
        """The result of one command."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        self._to.write(json.dumps(message).encode() + b"\0")
        while True:
            reply = self._message()
            if reply.get("id") == number:
                if "error" in reply:
                    raise RuntimeError(f"{method}: {reply['error']['message']}")
                result: dict[str, Any] = reply["result"]
                return result
            self.events.append(reply)

    def wait(self, event: str) -> None:
        """Returns once the browser has told of `event`."""
        while not any(told.get("method") == event for told in self.events):
            self.events.append(self._message())

    def open(self, address: str) -> None:
        """Loads a page anew; `events` are those since then."""
        for url in ("about:blank", address):
            self.events.clear()
            self("Page.navigate", url=url)
            self.wait("Page.loadEventFired")

    def value(self, expression: str) -> Any:
        """What an expression of the page's own language gives."""
        options = {"returnByValue": True, "awaitPromise": True}
        return self("Runtime.evaluate", expression=expression, **options)["result"].get("value")

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = self._from.read(1 << 16)
            if not more:
                raise RuntimeError("the browser is gone")
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found


@contextmanager
def browser(program: str) -> Iterator[Browser]:
    """Chromium with an empty profile, ended at the end."""
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        flags = [*_FLAGS, f"--user-data-dir={profile}"]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            flags.append("--no-sandbox")  # which root cannot have
        # The browser reads from its descriptor 3 and writes to 4.
        shell = f'exec "$@" 3<&{to_read} 4>&{from_write}'
        process = subprocess.Popen(
            ["bash", "-c", shell, "bash", program, *flags],
            pass_fds=(to_read, from_write),
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(from_write)
        try:
            yield Browser(from_read, to_write)
        finally:
            process.terminate()
            process.wait()


def pictures(tell: Browser, page: Path, folder: Path, anchor: str) -> list[str]:
    """Takes the pictures; gives what the page promises and does not keep."""
    address = page.resolve().as_uri()
    faults: list[str] = []
    for width, scheme in itertools.product(WIDTHS, SCHEMES):
        features = [{"name": "prefers-color-scheme", "value": scheme}, _CALM]
        tell("Emulation.setEmulatedMedia", features=features)
        size: dict[str, Any] = {
            "width": width,
            "height": 900,
            "deviceScaleFactor": 1,
            "mobile": width < 600,
        }
        tell("Emulation.setDeviceMetricsOverride", **size)
        tell.open(address)
        if anchor:
            tell.value(f"location.hash = {json.dumps(anchor)}")
            tell.value(_FRAMES)
        wide = tell.value("document.documentElement.scrollWidth")
        if wide > width:
            faults.append(f"{width} {scheme}: {wide} pixels wide")
        name = folder / f"{page.stem}-{width}-{scheme}{f'-{anchor}' if anchor else ''}.png"
        if not anchor:  # a screen as high as the page: what is out of sight need not be drawn
            height = tell.value("document.documentElement.scrollHeight")
            for _ in range(3):  # until no part is of a height that was only guessed
                size["height"] = min(height, _TALLEST)
                tell("Emulation.setDeviceMetricsOverride", **size)
                tell.value(_FRAMES)
                height = tell.value("document.documentElement.scrollHeight")
        _shoot(tell, name)
        faults += [f"{width} {scheme}: {fault}" for fault in _told(tell, address)]
    tell.open(address)
    return faults + _keyboard(tell)


def _shoot(tell: Browser, name: Path) -> None:
    name.write_bytes(base64.b64decode(tell("Page.captureScreenshot", format="png")["data"]))
    print(name)


def _told(tell: Browser, address: str) -> Iterator[str]:
    """Requests and messages that the page should not have caused."""
    for event in tell.events:
        method, about = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            url = about["request"]["url"]
            if url.partition("#")[0] != address:
                yield f"request to {url:.100}"
        elif method == "Log.entryAdded":
            yield f"message: {about['entry']['text']:.200}"
        elif method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
            yield f"message: {json.dumps(about):.200}"


def _keyboard(tell: Browser) -> list[str]:
    """Presses Tab until the page is left; what was reached must be all that there is, in order."""
    wanted = tell.value(_STOPS)
    found = []
    key = {"key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9}
    for _ in wanted:
        tell("Input.dispatchKeyEvent", type="keyDown", **key)
        tell("Input.dispatchKeyEvent", type="keyUp", **key)
        found.append((tell.value(_FOCUSED) or "nothing")[:120])
    print(f"{len(wanted)} places for the keyboard")
    missed = [f"Tab: wanted {w!r}, got {f!r}" for w, f in zip(wanted, found, strict=True) if w != f]
    return missed[:3]


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("page", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--chromium", default="chromium", help="the browser's program")
    parser.add_argument("--at", default="", help="one screen at this anchor, not the whole page")
    asked = parser.parse_args()
    program = shutil.which(asked.chromium)
    if program is None:
        print(f"error: there is no program {asked.chromium}", file=sys.stderr)
        return 1
    asked.folder.mkdir(parents=True, exist_ok=True)
    with browser(program) as tell:
        faults = pictures(tell, asked.page, asked.folder, asked.at)
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
