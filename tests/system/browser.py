"""A headless Chromium without network, driven over its debugging pipe."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time

INSTALL = "apt-get install -y --no-install-recommends chromium fonts-dejavu-core"
TIMEOUT_S = 60


def high_pipe():
    """A pipe away from 3 and 4, which the browser gets."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return moved


class Page:
    """One page. Use as a context manager; ends the browser at exit.

    `errors` collects exceptions and console errors of the page, `requests`
    every address that it asked for.
    """

    def __init__(self, folder):
        program = shutil.which("chromium")
        assert program, f"this test needs a browser: {INSTALL}"
        to_browser, self._out = high_pipe()
        self._in, from_browser = high_pipe()
        self._buffer, self._last_id = b"", 0
        self.errors, self.requests = [], []
        self._process = subprocess.Popen(
            [
                # Not sh: Debian's takes numbers of one digit only.
                "bash",
                "-c",
                f'exec "$@" 3<&{to_browser} 4>&{from_browser}',
                "bash",
                program,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--no-first-run",
                "--remote-debugging-pipe",
                # Any host name, that of an update server too, is unknown.
                "--host-resolver-rules=MAP * ~NOTFOUND",
                f"--user-data-dir={folder}",
                "about:blank",
            ],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call(
            "Target.attachToTarget", targetId=target, flatten=True
        )["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.call(
            "Network.emulateNetworkConditions",
            offline=True,
            latency=0,
            downloadThroughput=0,
            uploadThroughput=0,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._session = None
        try:
            self.call("Browser.close")
        except (AssertionError, OSError):
            self._process.kill()
        self._process.wait(timeout=TIMEOUT_S)
        os.close(self._in)
        os.close(self._out)

    def call(self, method, **parameters):
        """Sends a command of the DevTools protocol and waits for its result."""
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._last_id:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._note(answer)

    def open(self, file, width=1280, height=900, dark=False, phone=False):
        """Loads a file, in a window of that size, and waits for its scripts."""
        self.errors.clear()
        self.requests.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )
        scheme = "dark" if dark else "light"
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self.call("Page.navigate", url=file.resolve().as_uri())
        end = time.monotonic() + TIMEOUT_S
        while self.value("document.readyState") != "complete":
            assert time.monotonic() < end, f"{file} does not load"
            time.sleep(0.05)
        # Two frames: charts draw in the first.
        self.value(
            "new Promise(done => requestAnimationFrame(() => "
            "requestAnimationFrame(() => done(true))))"
        )

    def value(self, expression):
        """The value of a JavaScript expression, waited for if a promise."""
        answer = self.call(
            "Runtime.evaluate",
            expression=expression,
            returnByValue=True,
            awaitPromise=True,
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key):
        """Presses and releases a key, such as ArrowRight, where the focus is."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key)

    def screenshot(self, file, whole=True):
        """Writes a PNG of the page, or of the window only."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(answer["data"]))

    def pdf(self, file):
        """Prints the page as A4."""
        answer = self.call(
            "Page.printToPDF", printBackground=True, paperWidth=8.27, paperHeight=11.7
        )
        file.write_bytes(base64.b64decode(answer["data"]))

    def _receive(self):
        end = time.monotonic() + TIMEOUT_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], end - time.monotonic())
            assert ready, "the browser does not answer"
            read = os.read(self._in, 1 << 20)
            assert read, "the browser has ended"
            self._buffer += read
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _note(self, event):
        parameters = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.errors.append(parameters["exceptionDetails"])
        elif event.get("method") == "Log.entryAdded":
            if parameters["entry"]["level"] in ("error", "warning"):
                self.errors.append(parameters["entry"])
        elif event.get("method") == "Runtime.consoleAPICalled":
            if parameters["type"] in ("error", "warning", "assert"):
                self.errors.append(parameters)
        elif event.get("method") == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
