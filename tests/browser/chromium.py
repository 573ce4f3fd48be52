"""The Chromium of the system, without a window; nothing is downloaded to drive it."""

from __future__ import annotations

import os
import re
import shutil
from base64 import b64decode
from pathlib import Path

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
NEEDED = "chromium and chromedriver of the system are needed: apt-get install chromium-driver"
SCRIPTS = Path(__file__).parent
DRAWN_WITHIN_S = 60


def programs() -> tuple[str, str]:
    """Paths of the browser and of what drives it; a test is skipped where there are none."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip(NEEDED)
    return browser, driver


class Browser:
    """One tab."""

    def __init__(self) -> None:
        browser, chromedriver = programs()
        os.environ["SE_OFFLINE"] = "true"
        webdriver = pytest.importorskip("selenium.webdriver")
        options = webdriver.ChromeOptions()
        options.binary_location = browser
        for argument in (
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
        ):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        service = webdriver.ChromeService(executable_path=chromedriver)
        self.driver = webdriver.Chrome(options=options, service=service)
        self.timeout = pytest.importorskip("selenium.common").TimeoutException
        self.driver.set_script_timeout(DRAWN_WITHIN_S)

    def quit(self) -> None:
        """Close the tab and the browser."""
        self.driver.quit()

    def open(self, path: Path, *, width: int = 1280, scheme: str = "light") -> None:
        """Load a file and forget what the console said before."""
        self.console()
        self.resize(width)
        self.scheme(scheme)
        self.driver.get(path.as_uri())

    def resize(self, width: int) -> None:
        """The width of the window."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def scheme(self, name: str) -> None:
        """What the system prefers: `light` or `dark`."""
        wanted = [{"name": "prefers-color-scheme", "value": name}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wanted})

    def ask(self, script: str, *arguments: object) -> object:
        """The value of an expression."""
        return self.driver.execute_script(f"return ({script})", *arguments)

    def ask_file(self, name: str) -> object:
        """The value of the function in a file beside this one."""
        return self.ask(f"({(SCRIPTS / name).read_text(encoding='utf-8')})()")

    def draw(self) -> None:
        """Scroll to every chart and wait until it is drawn, those behind a line too."""
        script = (SCRIPTS / "draw.js").read_text(encoding="utf-8")
        self.driver.execute_async_script(f"({script})(arguments[0])")

    def settle(self) -> None:
        """Wait for two frames: what was asked for is shown then."""
        frames = "requestAnimationFrame(() => requestAnimationFrame(() => done()))"
        self.driver.execute_async_script(f"const done = arguments[0]; {frames}")

    def wait(self, condition: str) -> bool:
        """Wait until an expression is true; false if it never is."""
        try:
            self.driver.execute_async_script(
                "const done = arguments[0];"
                f"const look = () => ({condition}) ? done() : requestAnimationFrame(look);"
                "look();"
            )
        except self.timeout:
            return False
        return True

    def press(self, *keys: str) -> None:
        """Press keys one after the other."""
        from selenium.webdriver import ActionChains  # noqa: PLC0415 (it may be absent)

        ActionChains(self.driver, duration=0).send_keys(*keys).perform()

    def console(self) -> list[str]:
        """Errors that the console has told since it was asked last."""
        log = self.driver.get_log("browser")
        return [entry["message"] for entry in log if entry["level"] == "SEVERE"]

    def pdf_pages(self) -> int:
        """Pages of the document as it is printed."""
        from selenium.webdriver.common.print_page_options import (  # noqa: PLC0415 (likewise)
            PrintOptions,
        )

        pdf = b64decode(self.driver.print_page(PrintOptions()))
        return len(re.findall(rb"/Type\s*/Page\b", pdf))
