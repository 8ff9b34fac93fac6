"""What a notebook shows of an estimate."""

from __future__ import annotations

from html.parser import HTMLParser

from factories import FakePredictor, estimate_workload, make_accelerator, make_offer, make_selection, make_workload
from gpuplan.plan.estimate import Estimate
from gpuplan.plan.question import Question
from gpuplan.render.estimate_output import format_estimate_html


class Page(HTMLParser):
    """The texts of a page by the tag they are in."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        """Note a tag."""
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Every tag closes what was opened last."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Keep a text."""
        self.texts.append((self.open[-1], data))


def estimate(name: str) -> Estimate:
    """Return the answer on one machine."""
    offer = make_offer("T4", instance_type=name, region=name, price_as_of="2026-01-20")
    return estimate_workload(
        make_workload(),
        selection=make_selection((offer, make_accelerator("T4"))),
        predictor=FakePredictor(),
        question=Question(),
    )


def test_a_notebook_shows_the_table_and_two_lines() -> None:
    """The decision above the table, one line below it, and nothing else."""
    answer = estimate("gpu_1x_t4")
    page = Page(format_estimate_html(answer))
    around = [(tag, text) for tag, text in page.texts if tag not in ("th", "td")]

    assert page.open == []
    assert [tag for tag, _ in around] == ["caption", "p"]
    assert around[0][1] == answer.decision.sentence
    assert [text for tag, text in page.texts if tag == "td"][:2] == ["take", "T4 on Lambda"]


def test_names_stay_text() -> None:
    """Markup in the name of a region."""
    html = format_estimate_html(estimate("</td><script>alert(1)</script>"))

    assert "<script" not in html
    assert "&lt;script&gt;" in html
