"""A real Chromium without a window, driven over its own pipe (`--remote-debugging-pipe`): nothing listens anywhere."""

import base64
import fcntl
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path

# When what hangs is given up, in seconds: it judges nothing.
DEADLINE = 600
SWITCHES = [
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--force-color-profile=srgb", "--remote-debugging-pipe",
]


class Browser:
    """One browser with one page, and everything it complained of."""

    def __init__(self, root: Path, home: Path) -> None:
        """Starts the browser that is unpacked under `root`, or the system's beside it, with an empty profile under `home`."""
        # Out of the way of the two numbers that the browser expects its pipe at.
        commands, ours = (fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in os.pipe())
        answers, theirs = (fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in os.pipe())

        def pipes() -> None:
            os.dup2(commands, 3)
            os.dup2(theirs, 4)

        libraries = [str(path) for path in sorted(root.glob("usr/lib/*-linux-gnu"))]
        libraries += [str(path) for path in sorted(root.glob("usr/lib/*-linux-gnu/*")) if any(path.glob("*.so*"))]
        environment = os.environ | {"LD_LIBRARY_PATH": ":".join(libraries), "HOME": str(home), "TZ": "UTC", "LANG": "C.UTF-8"}
        unpacked = root / "usr/lib/chromium/chromium"
        # The system's own, which finds its libraries by itself.
        program = unpacked if unpacked.exists() else root.parent / "bin/chromium"
        self.log = (home / "chromium.log").open("w")
        self.process = subprocess.Popen(
            [program, *SWITCHES, f"--user-data-dir={home / 'profile'}", "about:blank"],
            env=environment, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
            pass_fds=(3, 4), preexec_fn=pipes, start_new_session=True,
        )
        os.close(commands)
        os.close(theirs)
        self.to, self.answers, self.rest = ours, answers, b""
        self.number, self.session = 0, None
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.traced: list[dict] = []
        self.trace_is_over = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.call(f"{domain}.enable")

    def end(self) -> None:
        """Ends the browser."""
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(20)
        os.close(self.to)
        os.close(self.answers)
        self.log.close()

    def call(self, method: str, **params):
        """One command of the protocol, and its answer."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + DEADLINE
        while True:
            answer = self.hear(end)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def hear(self, end: float) -> dict:
        """The next message; what it complains of or asks the network for is kept."""
        while b"\0" not in self.rest:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.answers], [], [], left)[0]:
                raise SystemExit("page: the browser does not answer")
            more = os.read(self.answers, 1 << 20)
            if not more:
                raise SystemExit(f"page: the browser ended: {Path(self.log.name).read_text()[-2000:]}")
            self.rest += more
        text, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(text)
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                self.complaints.append(json.dumps(params["args"]))
            case "Log.entryAdded":
                self.complaints.append(f"{params['entry']['level']}: {params['entry']['text']}")
            case "Network.requestWillBeSent":
                self.asked.append(params["request"]["url"])
            case "Tracing.dataCollected":
                self.traced += params["value"]
            case "Tracing.tracingComplete":
                self.trace_is_over = True
        return message

    def run(self, script: str):
        """What an expression is worth in the page; promises are waited for."""
        said = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in said:
            raise RuntimeError(f"{script}: {said['exceptionDetails']}")
        return said["result"].get("value")

    def wait(self, what: str, script: str):
        """Asks again until an expression is true."""
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            if found := self.run(script):
                return found
            time.sleep(0.1)
        raise SystemExit(f"page: gave up waiting for {what}; the page says: {self.run('document.body.innerText')[:3000]}")

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def size(self, width: int, height: int, scale: float = 1) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False)

    def scheme(self, name: str) -> None:
        """`light` or `dark`."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def press(self, key: str) -> None:
        """A key, down and up."""
        codes = {"Tab": 9, "Enter": 13, " ": 32}
        text = {"Enter": "\r", " ": " "}.get(key)
        more = {"text": text} if text else {}
        code = {" ": "Space"}.get(key, key)
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=code, windowsVirtualKeyCode=codes[key],
                **(more if kind == "keyDown" else {}),
            )

    def picture(self, path: Path, most: int = 10_000) -> None:
        """The page from its top, so many pixels down at most."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], most), "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))


def root() -> Path:
    """Where the browser is unpacked, if it is not the system's own."""
    setup = [sys.executable, str(Path(__file__).resolve().parents[2] / "engines/setup"), "--where", "chromium"]
    said = subprocess.run(setup, check=True, capture_output=True, text=True).stdout
    return Path(said.strip()).parent / "root"


class Trace:
    """What the page's own thread worked on while this is open: `longest` is the longest task, in milliseconds of
    processor. A clock on the wall would count what else the machine does."""

    def __init__(self, page: Browser) -> None:
        self.page, self.longest, self.tasks = page, 0.0, 0

    def __enter__(self) -> "Trace":
        kinds = ["toplevel", "devtools.timeline", "disabled-by-default-devtools.timeline"]
        self.page.traced, self.page.trace_is_over = [], False
        config = {"includedCategories": kinds, "excludedCategories": ["*"]}
        self.page.call("Tracing.start", transferMode="ReportEvents", traceConfig=config)
        return self

    def __exit__(self, *_) -> None:
        self.page.call("Tracing.end")
        end = time.monotonic() + DEADLINE
        while not self.page.trace_is_over:
            self.page.hear(end)
        events = self.page.traced
        main = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name" and e["args"]["name"] == "CrRendererMain"}
        tasks = [e["tdur"] / 1000 for e in events if (e["pid"], e["tid"]) in main and "RunTask" in e["name"] and "tdur" in e]
        self.longest, self.tasks = max(tasks, default=0.0), len(tasks)
