"""Every law of the catalog, in `gpuplan catalog check` or in `laws`, finds the row that breaks it."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from importlib.resources import as_file, files
from pathlib import Path

import pytest
from data import laws
from gpuplan.offers.catalog_files import Finding
from gpuplan.offers.check import check_catalog

TODAY = date(2026, 11, 28)
Edit = Callable[[Path], int]  # changes a catalog; returns the line that a finding must name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the packaged catalog that may be spoiled."""
    with as_file(files("gpuplan.catalog")) as packaged:
        shutil.copytree(packaged, tmp_path / "catalog", ignore=shutil.ignore_patterns("__pycache__", "*.py"))
    return tmp_path / "catalog"


def find_all(folder: Path) -> list[Finding]:
    """Return the findings of `gpuplan catalog check` and of the laws of the packaged catalog."""
    return [*check_catalog(folder, today=TODAY).findings, *laws.find_broken_laws(folder)]


def cell(file: str, match: dict[str, str], column: str, value: str) -> Edit:
    """Return an edit that writes one cell of the first row that has these values."""

    def edit(folder: Path) -> int:
        path = folder / "prices" / file
        with path.open(newline="") as stream:
            rows = list(csv.DictReader(stream))
        index = next(i for i, row in enumerate(rows) if match.items() <= row.items())
        rows[index][column] = value
        with path.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, rows[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        return index + 2

    return edit


def repeat_last_row(file: str) -> Edit:
    """Return an edit that writes the last row of a price file a second time."""

    def edit(folder: Path) -> int:
        path = folder / "prices" / file
        lines = path.read_text().splitlines()
        path.write_text("\n".join([*lines, lines[-1]]) + "\n")
        return len(lines) + 1

    return edit


def swap_first_rows(file: str) -> Edit:
    """Return an edit that swaps the first two rows of a price file."""

    def edit(folder: Path) -> int:
        path = folder / "prices" / file
        header, first, second, *rest = path.read_text().splitlines()
        path.write_text("\n".join([header, second, first, *rest]) + "\n")
        return 3

    return edit


def text(file: str, old: str, new: str, *, at: str = "[[") -> Edit:
    """Return an edit that replaces text once; the finding is at the last header (``at``) before it."""

    def edit(folder: Path) -> int:
        path = folder / file
        before, found, after = path.read_text().partition(old)
        assert found, f"{old!r} is not in {file}"
        path.write_text(before + new + after)
        lines = (before + new).splitlines()
        return max(number for number, line in enumerate(lines, 1) if line.startswith(at))

    return edit


def copy_of(file: str, name: str) -> Edit:
    """Return an edit that gives a price file a second name."""

    def edit(folder: Path) -> int:
        shutil.copy(folder / "prices" / file, folder / "prices" / name)
        return 1

    return edit


T4_SPOT = {"instance_type": "attach:T4", "region": "us-central1", "purchase": "spot"}
V3_8 = {"instance_type": "tpu-v3-8", "region": "us-central1"}
VAST = {"instance_type": "1x Tesla P40 [lowest]"}


@dataclass(frozen=True)
class Case:
    """A law, what breaks it, and what the finding says."""

    law: str
    edit: Edit
    file: str
    field: str
    message: str


CASES = [
    Case("check_price_is_positive", cell("vast.csv", VAST, "usd_per_hour", "0"), "prices/vast.csv", "usd_per_hour",
         "is not above 0"),
    Case("check_price_bounds", cell("vast.csv", VAST, "usd_per_hour", "2500"), "prices/vast.csv", "usd_per_hour",
         "out of bounds"),
    Case("check_accelerator_is_known", cell("vast.csv", VAST, "accelerator", "P41"), "prices/vast.csv",
         "accelerator", "`P41` is not in accelerators.toml"),
    Case("check_no_duplicate_offers", repeat_last_row("vast.csv"), "prices/vast.csv", "instance_type",
         "is the same offer as in line 48"),
    Case("check_rows_are_sorted", swap_first_rows("vast.csv"), "prices/vast.csv", "instance_type", "out of order"),
    Case("check_region_format", cell("gcp.csv", V3_8, "region", "us-east-1"), "prices/gcp.csv",
         "region", "`us-east-1` does not match the region pattern of Google Cloud"),
    Case("check_machine_size", cell("gcp.csv", V3_8, "memory_gib", "334000"), "prices/gcp.csv",
         "memory_gib", "outside 0.5 to 65536"),
    Case("check_tpu_slices_count_chips", cell("gcp.csv", V3_8, "devices", "8"), "prices/gcp.csv", "devices",
         "this slice has 4 chips"),
    Case("check_spot_not_above_on_demand", cell("gcp.csv", T4_SPOT, "usd_per_hour", "0.36"), "prices/gcp.csv",
         "usd_per_hour", "is above the on-demand price 0.35"),
    Case("check_source_is_present", cell("vast.csv", VAST, "source", "hearsay"), "prices/vast.csv", "source",
         "`hearsay` is not a key of sources.toml"),
    Case("check_date_not_in_future", cell("vast.csv", VAST, "as_of", "2026-12"), "prices/vast.csv", "as_of",
         "2026-12 is in the future"),
    Case("check_names_are_unique", text("accelerators.toml", 'name = "K80-board"', 'name = "k80"'),
         "accelerators.toml", "name", "is the same as in line"),
    Case("check_bandwidth_and_memory", text("accelerators.toml", "memory_gb_per_s = 240\n",
         "memory_gb_per_s = 240e9\n"), "accelerators.toml", "memory_gb_per_s", "outside 20 to 40000"),
    Case("check_peak_bounds", text("accelerators.toml", "fp32_tflop_per_s = 4.37\n",
         "fp32_tflop_per_s = 4.37e12\n"), "accelerators.toml", "fp32_tflop_per_s", "outside 0.01 to 50000"),
    Case("check_peak_bounds", text("accelerators.toml", "fp32_tflop_per_s = 4.37\n", ""), "accelerators.toml",
         "fp32_tflop_per_s", "is unknown, and so are fp16 and bf16"),
    Case("check_peaks_are_ordered", text("accelerators.toml", "fp16_tensor_tflop_per_s = 125\n",
         "fp16_tensor_tflop_per_s = 12.5\n"), "accelerators.toml", "fp32_tflop_per_s",
         "15.7 is above `fp16_tensor_tflop_per_s` 12.5"),
    Case("check_peaks_are_ordered", text("accelerators.toml", "usable_gib = 11.17\n", "usable_gib = 111.7\n"),
         "accelerators.toml", "usable_gib", "111.7 is above `memory_gib` 12"),
    Case("is_future", text("notebooks.toml", 'as_of = "2023-01-12"', 'as_of = "2027"'), "notebooks.toml",
         "as_of", "2027 is in the future"),
    Case("images", text("images.toml", '"Turing", "Ampere"', '"Turin", "Ampere"'), "images.toml", "serves",
         "`Turin` is no architecture"),
    Case("images", text("images.toml", '"Turing", "Ampere"', '"Volta", "Ampere"'), "images.toml", "serves",
         "an open driver does not serve Volta"),
    Case("images", text("images.toml", 'provider = "azure"', 'provider = "azur"'), "images.toml", "provider",
         "no row in providers.toml"),
    Case("dates", text("accelerators.toml", "read_on = 2026-11-21", "read_on = 2026-11-29"),
         "accelerators.toml", "read_on", "is in the future"),
    Case("dates", text("hosts.toml", "read_on = 2026-11-21", "read_on = 2030-01-01"), "hosts.toml", "read_on",
         "is in the future"),
    Case("check_source_is_an_address", text("accelerators.toml", 'source = "https://www.techpowerup.com',
         'source = ""  #'), "accelerators.toml", "source", "does not begin with an address, and names no page"),
    Case("check_source_names_no_bare_commit", text("links.toml", 'source = "https://github.com/awsdocs',
         'source = "awsdocs/amazon-ec2-user-guide@00f19653 doc.md"  #'), "links.toml", "source",
         "`awsdocs/amazon-ec2-user-guide@00f19653` is not an address"),
    Case("aliases", text("accelerators.toml", '"GK210" = "K80"', '"GK210" = "K81"', at='"GK210"'),
         "accelerators.toml", "GK210", "means `K81`, which is not a row"),
    Case("aliases", text("accelerators.toml", '"GK210" = "K80"', '"T4" = "K80"', at='"T4"'),
         "accelerators.toml", "T4", "has another meaning as well"),
    Case("family", text("accelerators.toml", '"P100-16GB" = ["P100-PCIe", "P100-SXM2"]',
         '"P100-16GB" = ["P100-PCIe"]', at='"P100-16GB" = ["P100-PCIe"]'), "accelerators.toml", "P100-16GB",
         "does not list two or more rows"),
    Case("hosts", text("hosts.toml", 'host = "AMD Turin"', 'host = "AMD Torino"'), "hosts.toml", "host",
         "unknown family `AMD Torino`"),
    Case("check_turbo_clock", text("hosts.toml", "all_core_turbo_ghz = 2.8", "all_core_turbo_ghz = 2800"),
         "hosts.toml", "all_core_turbo_ghz", "outside 0.5 to 7"),
    Case("notebooks", text("notebooks.toml", 'accelerator = "L4"', 'accelerator = "L5"'), "notebooks.toml",
         "accelerator", "`L5` is not in accelerators.toml"),
    Case("notebooks", text("notebooks.toml", 'plans = ["payg", "pro", "pro-plus"]', 'plans = ["ultra"]'),
         "notebooks.toml", "plans", "`ultra` is not a plan of `colab`"),
    Case("notebooks", text("notebooks.toml", 'plan = "payg"\nusd', 'plan = "free"\nusd'), "notebooks.toml",
         "plan", "`free` is not a paid plan of `colab`"),
    Case("notebooks", text("notebooks.toml", 'runtime = "v100"\nunits', 'runtime = "v200"\nunits'),
         "notebooks.toml", "runtime", "`v200` is not a runtime of `colab`"),
    Case("coverage", text("providers.toml", 'name = "aws"', 'name = "awz"'), "providers.toml", "name",
         "`awz` has no offer"),
    Case("coverage", copy_of("vast.csv", "x.csv"), "prices/x.csv", "provider",
         "`x` has no row in providers.toml"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[f"{case.law}-{case.field}" for case in CASES])
def test_a_broken_law_is_found_with_its_place(folder: Path, case: Case) -> None:
    """One spoiled row gives a finding with the file, the line and the field."""
    line = case.edit(folder)

    findings = find_all(folder)

    matching = [f for f in findings if f.file == case.file and f.field == case.field and case.message in f.message]
    assert [f.line for f in matching][:1] == [line], findings[:5]


def test_the_untouched_copy_is_clean(folder: Path) -> None:
    """What the cases find comes from their edit alone."""
    assert find_all(folder) == []


def test_every_law_has_a_case() -> None:
    """A law that nothing can break is no law: each has a row that breaks it, here or in `test_price_laws`."""
    named = {name for name in vars(laws) if name.startswith("check_")}
    planted = {
        "check_sources_are_addresses", "check_spot_share", "check_no_exact_tenths",
        "check_active_dates_have_a_day", "check_names_are_the_vendors", "check_chip_price_across_regions",
        "check_spot_price_across_regions", "check_chip_price_across_vendors", "check_chips_are_ordered_by_price",
    }  # fmt: skip
    assert len(named) == 18
    assert named - planted <= {case.law for case in CASES}
    assert planted < named


def test_a_marked_spot_price_may_be_above_on_demand(folder: Path) -> None:
    """The note `above on demand` says that the price was read so."""
    cell("gcp.csv", T4_SPOT, "usd_per_hour", "0.36")(folder)
    cell("gcp.csv", T4_SPOT, "note", "GPU add-on only; above on demand on that day")(folder)

    assert find_all(folder) == []


def test_a_finding_reads_like_a_compilers() -> None:
    """file:line: field: message, so that editors can jump to it."""
    assert str(Finding("prices/aws.csv", 7, "region", "is odd")) == "prices/aws.csv:7: region: is odd"


@pytest.mark.parametrize(
    ("name", "content", "line", "field"),
    [
        ("accelerators.toml", "[[accelerator]]\nname = ", 2, "TOML"),
        ("hosts.toml", None, 1, "file"),
        ("prices/vast.csv", "a,b\n1,2\n", 1, "header"),
        ("sources.toml", "[sources]\nx = 3\n", 2, "x"),
    ],
)
def test_unreadable_files_are_findings(
    folder: Path, name: str, content: str | None, line: int, field: str
) -> None:
    """A file that is missing, is no TOML or has another header is named, and the check goes on."""
    path = folder / name
    path.unlink() if content is None else path.write_text(content)

    findings = check_catalog(folder, today=TODAY).findings

    assert (name, line, field) in {(f.file, f.line, f.field) for f in findings}
