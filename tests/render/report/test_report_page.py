"""The page of `gpuplan report`, as text: whole, small, the same every time, and safe whatever names are in it."""

from __future__ import annotations

import base64
import copy
import gzip
import json
import re
from html.parser import HTMLParser
from importlib.resources import files
from typing import Any

import jsonschema
import pytest
from gpuplan.errors import UsageError
from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.local import GENERIC_HOST
from gpuplan.plan.estimate import Estimate
from gpuplan.render.report.page import build_report_html
from gpuplan.render.report.text import compute_script_hash
from gpuplan.render.report.view import build_view
from hostile import HOSTILE

NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
VOID = {"meta", "input", "img", "br", "link"}


class Page(HTMLParser):
    """What a browser would make of a page: its scripts, links, tags and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag; those that hold something must close."""
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        """Every tag closes what was opened last."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Keep scripts apart from what people read."""
        if self.open and self.open[-1] == "script":
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)
        else:
            self.text += data

    def unpack(self, name: str) -> Any:
        """Return a data block by its id."""
        packed = next(text for attributes, text in self.scripts if attributes.get("id") == name)
        return json.loads(gzip.decompress(base64.b64decode(packed)))


@pytest.fixture(scope="module")
def text(plan: dict[str, Any]) -> str:
    """The page."""
    return build_report_html(plan)


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    """The page as it is parsed."""
    return Page(text)


def test_the_plan_keeps_its_schema_with_details(plan: dict[str, Any]) -> None:
    """schemas/gpuplan.estimate.json accepts what a report needs."""
    schema = json.loads(files("gpuplan.schemas").joinpath("gpuplan.estimate.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(plan, schema)


def test_the_whole_catalog_fits_in_a_mail(whole_plan: dict[str, Any]) -> None:
    """Every offer of the catalog within 1.5 MB, which any mail server takes."""
    text = build_report_html(whole_plan)

    assert len(whole_plan["offers"]) > 3000
    assert len(text.encode()) <= 1_500_000


def read_cells(rows: list[Any]) -> tuple[list[str], list[float]]:
    """Return the text of the cells of a table without numbers, and the numbers."""
    cells = [cell[0] for row in rows for cell in row]
    found = [one for cell in cells for one in NUMBER.findall(cell)]
    return [NUMBER.sub("#", cell) for cell in cells], [float(one.replace(",", "")) for one in found]


def test_a_plan_of_an_earlier_version_gives_the_same_page(answer: Estimate, plan: dict[str, Any]) -> None:
    """Its offers were whole, at full precision; what is read is the same."""
    whole = [json.loads(json.dumps(one.to_json(breakdown=True))) for one in answer.offers]
    earlier = {key: value for key, value in plan.items() if key not in ("devices", "price_sources")}
    old, new = (build_view(one) for one in ({**earlier, "offers": whole}, plan))

    (old_words, old_numbers), (new_words, new_numbers) = (read_cells(view["rows"]) for view in (old, new))
    assert old_words == new_words
    assert old_numbers == pytest.approx(new_numbers, rel=1e-3), "a plan has numbers of a few digits, rounded again"
    for part in ("headline", "cards", "bills", "sources", "steps"):
        assert old[part] == new[part]


def test_cards_and_bills_are_those_of_the_decision(plan: dict[str, Any]) -> None:
    """One for each offer that the decision names, and of no other; the table and the chart begin with them."""
    view = build_view(plan)
    picks = [one for one in plan["decision"].values() if isinstance(one, dict)]

    assert len(view["cards"]) == len({one["offer"] for one in picks}) > 1
    assert view["cards"][0]["where"].startswith(plan["decision"]["recommended"]["instance_type"])
    assert [bill["machine"] for bill in view["bills"]] == [card["machine"] for card in view["cards"]]
    assert [row[0][0] for row in view["top"]][:2] == [card["mark"] for card in view["cards"]][:2]
    marked = [point["mark"] for point in view["chart"]["points"] if point["mark"]]
    assert marked == [card["mark"] for card in view["cards"]]


def test_an_offer_without_quota_is_marked(plan: dict[str, Any]) -> None:
    """In the first column, unless the decision names it."""
    last = len(plan["offers"]) - 1
    quota = {"state": "too_small", "why": "0 of 8 vCPUs", "link": None}
    refused = {**plan, "offers": [*plan["offers"][:-1], {**plan["offers"][last], "quota": quota}]}

    assert build_view(plan)["rows"][last][0][0] == ""
    assert build_view(refused)["rows"][last][0][0] == "no quota"


def test_the_same_plan_gives_the_same_page(text: str, plan: dict[str, Any]) -> None:
    """No clock and no chance in it."""
    assert build_report_html(copy.deepcopy(plan)) == text


def test_nothing_is_loaded_from_anywhere(text: str, page: Page) -> None:
    """No source of a script, style, image or frame; links are followed by people alone."""
    for tag, attributes in page.tags:
        assert tag not in ("img", "iframe", "object", "embed", "link", "svg", "base", "form")
        assert not {"src", "srcset", "style"} & set(attributes)
        assert not [name for name in attributes if name.startswith("on")]
        assert tag == "a" or "href" not in attributes
        if tag == "a":
            assert re.match(r"#|https?://", attributes["href"] or "")
    assert not re.search(r"@import|url\(", text[: text.index("</style>")])


def test_every_source_has_a_date_and_its_address_or_says_that_none_is_known(text: str) -> None:
    """In the table of sources; only what the catalog itself calls unverified, and one's own machine, have none."""
    table = text[text.index('id="sources"') : text.index('<details id="data"')]
    rows = re.findall(r"<tr><th scope=\"row\".*?</tr>", table, re.DOTALL)
    without = {re.sub(r"<[^>]*>", "", row.split("</bdi>")[0]).strip() for row in rows if "href=" not in row}

    assert len(rows) > 10
    dated = [row for row in rows if "owned by the user" not in row]
    assert all(re.match(r"\d{4}(-\d\d)*", row.rsplit("<td>", 1)[1]) for row in dated)
    assert all("no address on record" in row for row in rows if "href=" not in row)
    own = {"owned by the user", load_catalog().hosts[GENERIC_HOST].source}  # an unknown processor
    assert all("[unverified]" in one or one in own for one in without)


def test_only_the_scripts_of_the_package_may_run(page: Page) -> None:
    """The content security policy names each script by its hash; everything else is data."""
    policy = next(a["content"] or "" for tag, a in page.tags if tag == "meta" and a.get("http-equiv"))
    running = [script for attributes, script in page.scripts if "type" not in attributes]

    assert len(running) == 3
    assert "default-src 'none'" in policy
    for script in running:
        assert compute_script_hash(script) in policy
    assert "unsafe" not in policy.split("script-src")[1].split(";")[0]


def test_hostile_names_stay_text(page: Page) -> None:
    """Names with markup, quotes, templates and marks that turn the direction of writing are read, not run."""
    for name in HOSTILE[:4]:
        assert name in page.text
    assert "a⟨U+202E⟩txt.exe⟨U+2066⟩⟨U+200F⟩⟨U+0000⟩⟨U+2028⟩" in page.text
    assert not set("\u202e\u2066\u200f\x00") & set(page.text)
    assert page.open == []


def test_the_plan_inside_is_the_plan(page: Page, plan: dict[str, Any]) -> None:
    """Unpacked, it is what `gpuplan estimate -o` wrote, hostile names as they were."""
    assert page.unpack("plan-data") == plan
    assert len(page.unpack("rows-data")) == len(plan["offers"])


def test_every_section_has_its_numbers_in_a_table(page: Page, plan: dict[str, Any]) -> None:
    """What charts show can be read: parts of memory, kinds, layers, bills, ways, assumptions and sources."""
    details = plan["details"]
    wanted = [
        *plan["workload"]["memory_parts_bytes"],
        *(kind["name"] for step in details["steps"] for kind in step["kinds"]),
        *(line["item"] for line in details["bills"][0]["lines"]),
        *(way["name"] for way in details["epochs"]),
        *(one["key"] for one in plan["terms"]["assumptions"]),
        *plan["price_sources"].values(),
        *(step["source"] for step in details["steps"]),
    ]
    cells = " ".join(page.text.split())
    missing = {name for name in wanted if name not in cells}
    sizes = {"other variables"}  # of no bytes here
    assert missing <= sizes


def test_the_answer_is_a_sentence(page: Page, answer: Estimate) -> None:
    """It is the decision of the estimate, which names the offer to take."""
    best = answer.offers[answer.decision.recommended or 0]
    line = next(line for line in page.text.splitlines() if answer.decision.sentence in line)

    assert best.offer.accelerator in line
    assert line.strip() == answer.decision.sentence


def test_a_plan_without_details_says_what_it_lacks(plan: dict[str, Any]) -> None:
    """As `--json` prints it: no step, no epochs; the rest is there, and the page is whole."""
    bare = {key: value for key, value in plan.items() if key != "details"}
    page = Page(build_report_html(bare))

    assert page.open == []
    assert page.text.count("This plan does not hold it") == 3
    assert "This plan holds no bill" in page.text


def test_what_is_no_plan_is_said_in_one_line(plan: dict[str, Any]) -> None:
    """A member that is missing is named."""
    with pytest.raises(UsageError, match="the plan cannot be read: KeyError at 'decision'"):
        build_report_html({key: value for key, value in plan.items() if key != "decision"})
