"""Takes the picture of a report for the README.

Usage: python3 scripts/screenshot_report.py RUN/report.html docs/images/report.png
Needs chromium.
"""

import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "system"))

from browser import Page  # noqa: E402

WIDTH, HEIGHT = 1280, 1420


def main(report, picture):
    picture.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as profile, Page(profile) as page:
        page.open(report, width=WIDTH, height=HEIGHT)
        page.screenshot(picture, whole=False)
    print(f"{picture}: {picture.stat().st_size} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
