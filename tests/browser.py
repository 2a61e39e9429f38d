"""Chromium, driven over its debugging pipe: for pages whose script must be seen to work."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")


class Page:
    """One page of a browser; messages are JSON with a NUL behind each (Chrome DevTools Protocol, --remote-debugging-pipe)."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._rest = b""
        self._number = 0
        self._session: dict[str, str] = {}
        self.requests: list[str] = []  # addresses that the page asked the network for
        self.errors: list[str] = []  # what the console and its security policy complained about
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = {"sessionId": self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def forget(self) -> None:
        """Be as new: what an earlier test of the same browser asked for and complained about is not the next one's."""
        self.call("Emulation.clearDeviceMetricsOverride")
        self.call("Page.navigate", url="about:blank")
        self.requests.clear()
        self.errors.clear()

    def open(self, file: Path) -> None:
        """Open a file and wait until its script has drawn, if it has one that does."""
        self.call("Page.navigate", url=file.as_uri())
        drawn = f"location.href.startsWith('{file.as_uri()}') && !document.getElementById('graph')?.hidden"
        self.ask("new Promise((done) => { const wait = () => document.readyState === 'complete' && "
                 f"{drawn} ? done(true) : setTimeout(wait, 20); wait(); }})")  # fmt: skip

    def ask(self, expression: str) -> Any:
        """Return the value of an expression in the page, awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def key(self, key: str) -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **({"text": key} if len(key) == 1 else {}))

    def click(self, x: float, y: float) -> None:
        """Move the mouse to a place of the window and press its button."""
        for kind, count in (("mouseMoved", 0), ("mousePressed", 1), ("mouseReleased", 1)):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=count)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters, **self._session}
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        if event["method"] == "Network.requestWillBeSent":
            self.requests.append(event["params"]["request"]["url"])
        if event["method"] in ("Log.entryAdded", "Runtime.exceptionThrown"):
            self.errors.append(json.dumps(event["params"]))

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            block = os.read(self._answers, 1 << 16)
            assert block, "the browser has ended"
            self._rest += block
        message, _, self._rest = self._rest.partition(b"\0")
        event: dict[str, Any] = json.loads(message)
        return event


@contextmanager
def browser_page(profile: Path) -> Iterator[Page]:
    """Give a page of a browser of its own; skips where there is none."""
    name = next((found for name in _NAMES if (found := shutil.which(name))), None)
    if name is None:
        pytest.skip("no Chromium on PATH, in which the page could be opened")
    (commands_in, commands), (answers, answers_out) = os.pipe(), os.pipe()
    # The browser reads from 3 and writes to 4, which may be ours for something else.
    ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (commands_in, answers_out)]
    process = subprocess.Popen(
        ["bash", "-c", f'exec "$@" 3<&{ends[0]} 4>&{ends[1]}', "bash", name, "--headless", "--no-sandbox", "--disable-gpu",
         "--no-first-run", "--window-size=1400,1000", f"--user-data-dir={profile}", "--remote-debugging-pipe"],
        pass_fds=ends, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    for end in (commands_in, answers_out, *ends):
        os.close(end)
    try:
        yield Page(commands, answers)
    finally:
        os.killpg(process.pid, 9)
        process.wait()
        os.close(commands)
        os.close(answers)
