"""Pictures of a report at desktop and phone width, light and dark, to be looked at.

    gpuplan report plan.json -o report.html && python benchmarks/report_screenshots.py report.html pictures/

Needs `pip install playwright` and a Chromium; the network is off.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

VIEWS = {"desktop": (1300, 900), "phone": (400, 850)}
FOLDS = ("bill", "step", "roofline", "memory", "epochs", "assumptions")


def main(report: str, folder: str) -> None:
    """Write pictures of the first screen, the page and each of its folded parts, in all views."""
    from playwright.sync_api import sync_playwright

    out = Path(folder)
    out.mkdir(exist_ok=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), chromium_sandbox=os.geteuid() != 0
        )
        for view, (width, height) in VIEWS.items():
            for scheme in ("light", "dark"):
                size = {"width": width, "height": height}
                page = browser.new_context(viewport=size, color_scheme=scheme, offline=True).new_page()  # type: ignore[arg-type]
                page.goto(Path(report).resolve().as_uri())
                page.wait_for_selector("#count:not(:empty)", state="attached")
                page.screenshot(path=out / f"{view}-{scheme}-top.png")
                page.screenshot(path=out / f"{view}-{scheme}-page.png", full_page=True)
                for fold in FOLDS:
                    page.locator(f"#{fold} > summary").click()
                    page.locator(f"#{fold}").screenshot(path=out / f"{view}-{scheme}-{fold}.png")
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:3])
