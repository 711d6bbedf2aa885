# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, driven by its DevTools protocol over a pipe."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections import deque

# Ubuntu's is a snap, which may not use a folder that is made here.
PROGRAM = next((found for name in ("chromium", "google-chrome")
                if (found := shutil.which(name)) and not found.startswith("/snap/")), None)  # fmt: skip


def luminance(colour: str) -> float:
    parts = [int(colour.strip()[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(part * share for part, share in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))


def contrast(ink: str, paper: str) -> float:
    """Of two colours `#rrggbb`, by WCAG 2, whose AA is 4.5 for text."""
    darker, lighter = sorted((luminance(ink), luminance(paper)))
    return (lighter + 0.05) / (darker + 0.05)


class Chromium:
    """One window. What the page's console and its policy complain of is in `complaints`."""

    def __init__(self, width: int = 1280, height: int = 1500) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="cukiln-chromium-", ignore_cleanup_errors=True)
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()
        # The browser reads commands from descriptor 3 and writes to 4.
        shell = f'exec 3<&{to_browser} 4>&{from_browser}; exec "$@"'
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "-", PROGRAM, "--headless=new", "--no-sandbox", "--disable-gpu",
             "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-extensions", "--remote-debugging-pipe",
             f"--user-data-dir={self.folder.name}", f"--window-size={width},{height}", "about:blank"],
            pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": self.folder.name})  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self.buffer = b""
        self.last_id = 0
        self.events: deque[dict] = deque()
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank", session=None)["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True, session=None)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *_) -> None:
        try:
            self.call("Browser.close", session=None)
        except OSError:
            pass
        os.close(self.write_end)
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.read_end)
        self.folder.cleanup()

    def call(self, method: str, session: str | None = "own", **parameters) -> dict:
        self.last_id += 1
        message = {"id": self.last_id, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self.last_id:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _read(self) -> dict:
        while b"\0" not in self.buffer:
            part = os.read(self.read_end, 1 << 16)
            if not part:
                raise OSError("Chromium has ended")
            self.buffer += part
        line, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(line)
        parameters = message.get("params", {})
        if message.get("method") == "Log.entryAdded":
            self.complaints.append(parameters["entry"]["text"])
        elif message.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(parameters["exceptionDetails"]))
        elif message.get("method") == "Network.requestWillBeSent":
            self.events.append(parameters["request"])
        return message

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def evaluate(self, expression: str):
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"]["exception"]["description"])
        return result["result"].get("value")

    def wait_for(self, expression: str, seconds: float = 10):
        """Until it is true, or what it was last."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                value = self.evaluate(expression)
            except RuntimeError:
                value = None  # the page is on its way
            if value or time.monotonic() > deadline:
                return value
            time.sleep(0.05)

    def click(self, selector: str) -> None:
        x, y = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center'}});"
            " const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def type(self, text: str) -> None:
        for sign in text:
            self.call("Input.dispatchKeyEvent", type="keyDown", text=sign, key=sign)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=sign)

    def press(self, key: str, code: int, text: str | None = None) -> None:
        extra = {"text": text} if text else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, windowsVirtualKeyCode=code, **extra)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=code)

    def prefer(self, scheme: str) -> None:
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def contrasts(self, inks: str, papers: str) -> dict[tuple[str, str], float]:
        """Of the page's custom properties with these names."""
        value = "getComputedStyle(document.documentElement).getPropertyValue('--{}')"
        return {(ink, paper): contrast(self.evaluate(value.format(ink)), self.evaluate(value.format(paper)))
                for ink in inks.split() for paper in papers.split()}  # fmt: skip

    def screenshot(self, path: str) -> None:
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot")["data"]))
