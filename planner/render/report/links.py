"""URLs from the wording of sources in the catalog."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

__all__ = ["find_links_in_source"]

_SITE = r"\b((?:[a-z0-9-]+\.)+(?:com|org|net|io|dev|ai|app|cloud|gov|eu|edu)(?:/[\w./~#?=&%+-]*\w)?)"


def _build_commit_url(found: re.Match[str]) -> str:
    repository, commit, path = found.groups()
    place = f"blob/{commit}/{path}" if path else f"tree/{commit}"
    return f"https://github.com/{repository}/{place}"


# Patterns of sources and their URLs, in order; matched text is removed before the next pattern.
_PATTERNS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"https?://[^\s<>\"'\[\]]+[^\s<>\"'\[\].,;:)]"), lambda found: found.group()),
    (re.compile(r"\b([\w.-]+/[\w.-]+)@([0-9a-f]{7,40})(?:\s+([\w./-]+\.\w+))?"), _build_commit_url),
    (
        re.compile(r"\b([\w.-]+/[\w.-]+) (?:pull request|issue) (\d+)"),
        lambda found: f"https://github.com/{found[1]}/issues/{found[2]}",  # redirects to a pull request
    ),
    (
        re.compile(r"\bcolabtools issue (\d+)"),
        lambda found: f"https://github.com/googlecolab/colabtools/issues/{found[1]}",
    ),
    (re.compile(r"\barXiv:(\d{4}\.\d{4,5})"), lambda found: f"https://arxiv.org/abs/{found[1]}"),
    (
        re.compile(r"\b(google-colab-cli|kaggle) (\d+\.\d+\.\d+)"),
        lambda found: f"https://pypi.org/project/{found[1]}/{found[2]}/",
    ),
    (
        re.compile(r"\bTechCrunch 2022-09-29"),
        lambda _: (
            "https://techcrunch.com/2022/09/29/"
            "google-colaboratory-launches-a-pay-as-you-go-option-premium-gpu-access/"
        ),
    ),
    (
        re.compile(r"\bMcCormick\b"),
        lambda _: "https://mccormickml.com/2024/04/23/colab-gpus-features-and-pricing/",
    ),
    (re.compile(r"\bColab FAQ\b"), lambda _: "https://research.google.com/colaboratory/faq.html"),
    (re.compile(_SITE, re.IGNORECASE), lambda found: f"https://{found[1]}"),
)


def find_links_in_source(source: str) -> list[tuple[str, str]]:
    """Return the distinct URLs in a source, each with its site's name.

    Example:
        >>> find_links_in_source("tsaol/aws-gpu@77fcd9fe data/gpu.js (x)")
        [('github.com', 'https://github.com/tsaol/aws-gpu/blob/77fcd9fe/data/gpu.js')]
        >>> find_links_in_source("EBS gp3 (cloudtoolstack.com 2026)"), find_links_in_source("assumed")
        ([('cloudtoolstack.com', 'https://cloudtoolstack.com')], [])
    """
    return [(urlsplit(address).netloc, address) for address in dict.fromkeys(_iter_urls(source))]


def _iter_urls(source: str) -> Iterator[str]:
    """Yield URLs; matched text is removed before the next pattern."""
    for pattern, address in _PATTERNS:
        for found in pattern.finditer(source):
            yield address(found)
        source = pattern.sub(" ", source)
