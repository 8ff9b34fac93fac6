"""The documentation: built with warnings as errors, every link inside leads somewhere, every command is there."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import man
import pytest
from commands import commands

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


class _Links(HTMLParser):
    """Collects what a page leads to, loads, and can be led to."""

    def __init__(self) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep addresses and anchors."""
        found = dict(attrs)
        self.anchors.update(filter(None, (found.get("id"), found.get("name"))))
        if tag == "a" and found.get("href"):
            self.links.add(str(found["href"]))
        if tag in ("script", "img", "link"):
            self.loads.update(filter(None, (found.get("src"), found.get("href"))))


def _read(page: Path) -> _Links:
    links = _Links()
    links.feed(page.read_text(encoding="utf-8"))
    return links


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as CI builds it."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_link_inside_leads_to_a_page_and_an_anchor(site: Path) -> None:
    """Of the HTML as a reader gets it, not of its sources; MkDocs checks those."""
    pages = {page: _read(page) for page in site.rglob("*.html") if page.name != "404.html"}
    dead = []
    for page, found in pages.items():
        for link in found.links:
            path, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", link):
                continue
            target = (page.parent / unquote(path)).resolve() if path else page
            if target.is_dir():
                target /= "index.html"
            if not target.is_file() or (anchor and target in pages and anchor not in pages[target].anchors):
                dead.append(f"{page.relative_to(site)}: {link}")

    assert len(pages) > 25
    assert dead == []


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    """The site can be read from a folder, without a network, and no request tells about the reader."""
    loaded = {address for page in site.rglob("*.html") for address in _read(page).loads}

    assert loaded
    assert [address for address in loaded if re.match(r"(https?:)?//", address)] == []


def test_every_command_has_a_page_with_its_help(site: Path) -> None:
    """Generated from the program, subcommands too."""
    assert len(commands()) > 20
    for command in commands():
        page = (site / "commands" / f"{'-'.join(command.words)}.html").read_text(encoding="utf-8")
        assert f"Usage: {command.name} " in page


def test_the_reference_has_what_the_package_promises(site: Path) -> None:
    """From docstrings: every public name but the version and IPython's hook, and the arguments of `estimate`."""
    import gpuplan

    page = (site / "python.html").read_text(encoding="utf-8")

    for name in set(gpuplan.__all__) - {"__version__", "load_ipython_extension"}:
        assert re.search(rf'id="gpuplan\.[\w.]*{name}"', page), name
    assert "Time limit of the run" in page


def test_the_readme_is_not_told_twice(site: Path) -> None:
    """Quick start and limits hold README's own sections, so that neither can go out of date alone."""
    limits = (site / "limits.html").read_text(encoding="utf-8")

    assert "Every time states its basis" in limits
    assert "<!-- README" not in limits + (site / "index.html").read_text(encoding="utf-8")


def test_the_manual_page_names_every_command() -> None:
    """`python docs/_tools/man.py > docs/gpuplan.1` writes it again; a release does so by itself."""
    kept = (ROOT / "docs" / "gpuplan.1").read_text(encoding="utf-8")
    made = man.page()

    missing = [command.name for command in commands() if f".SS {man._escaped(command.name)}\n" not in kept]
    assert missing == [], "write it again: python docs/_tools/man.py > docs/gpuplan.1"
    assert made.startswith(".TH GPUPLAN 1")
    assert all(
        not line.startswith(("'", ".")) or re.match(r"\.(TH|SH|SS|TP|B|nf|fi)\b", line)
        for line in made.splitlines()
    )


def test_links_of_files_that_are_no_pages_lead_to_files() -> None:
    """README.md is read on its own, where MkDocs does not look."""
    for name in ("README.md", "CONTRIBUTING.md", "catalog/README.md", "benchmarks/README.md"):
        page = ROOT / name
        links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
        dead = [link for link in links if not re.match(r"[a-z]+:", link) and not (page.parent / link).exists()]
        assert dead == [], name
