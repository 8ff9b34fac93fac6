"""MkDocs hook: a page per command from `--help`, and files of the repository that pages link to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from commands import Command, commands
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
# Pages of the repository that are pages of the site too, and files that pages link to.
PAGES = ("CONTRIBUTING.md", "CHANGELOG.md", "catalog/README.md", "profiles/published/README.md")
FILES = (
    "examples/*",
    "schemas/*.json",
    "catalog/*.toml",
    "profiles/*.toml",
    "profiles/accuracy.json",
    "profiles/memory.json",
    "benchmarks/*.py",
    "benchmarks/results/*",
    "LICENSE",
)
SCHEMA = "schemas/gpuplan.estimate.json"  # stands for the folder, which is no page
SOURCE = ROOT / ".docs-source"  # the package under its own name, for what reads its docstrings


def on_startup(**_: Any) -> None:
    """Put the package under its own name for the reference, before the plugin of the reference looks for it."""
    link = SOURCE / "gpuplan"
    SOURCE.mkdir(exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(Path("..", "planner"))


def on_config(config: Any) -> Any:
    """Put the commands into the section of the navigation that names them."""
    entries = (entry for section in config.nav for entries in section.values() for entry in entries)
    (commands_entry,) = (entry for entry in entries if "Commands" in entry)
    commands_entry["Commands"] = ["commands/index.md", *({c.name: _page(c)} for c in commands())]
    return config


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages of the commands, and what lies outside the folder of the documentation."""
    found = commands()
    texts = {_page(command): _text(command) for command in found} | {"commands/index.md": _index(found)}
    for name, text in texts.items():
        files.append(File.generated(config, name, content=text))
    paths = [ROOT / name for name in PAGES] + [path for pattern in FILES for path in sorted(ROOT.glob(pattern))]
    for path in paths:
        if path.is_file():
            files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Put in what README.md says already, and let links to the repository's root lead to the copy in the site."""
    if "/" in page.file.src_uri:
        return markdown
    markdown = re.sub(r"<!-- README: (.+) -->", lambda found: section(found[1]), markdown)
    return markdown.replace("](../", "](").replace("](docs/", "](").replace("](schemas/)", f"]({SCHEMA})")


def section(title: str) -> str:
    """Return the section of README.md under a heading."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    if found is None:
        raise ValueError(f"README.md has no heading `{title}`")
    return found[1].strip()


def _page(command: Command) -> str:
    return f"commands/{'-'.join(command.words)}.md"


def _text(command: Command) -> str:
    return f"# {command.name}\n\n{command.summary}\n\n```text\n{command.help}\n```\n"


def _index(found: Sequence[Command]) -> str:
    rows = [f"| [`{c.name}`]({_page(c).removeprefix('commands/')}) | {c.summary} |" for c in found]
    return "\n".join(["# Commands", "", "| command | what it does |", "| --- | --- |", *rows, ""])
