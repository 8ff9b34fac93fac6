"""Release dates of the software of published runs: later libraries use a chip better."""

from __future__ import annotations

import csv
import re
from functools import cache
from importlib import resources

# The middle of the published years, which a framework's fitted rates are of. All published steps on tensor units
# but four, of one network and one publisher, are of later software: they do not tell how libraries changed before.
SOFTWARE_EPOCH = 2019.5
# Libraries of later years are hardly faster: networks without attention gain 1 to 2 % in the median from PyTorch
# 1.13 (2022) to 2.1, to 2.4 and to 2.9 (2025) on an RTX 3090 and an RTX 4090 (profiles/published/timm_infer.csv).
SOFTWARE_PLATEAU = 2022.5
# Volta came out in the middle of 2017. Its scalar units were used better with each release of the libraries until
# the middle of 2020; of published steps on a V100 those by software of 2017 and 2018 are slower by a fifth or more
# than later ones. Older chips show no trend: their libraries were mature by then.
SCALAR_EPOCH, SCALAR_PLATEAU = 2017.5, 2020.5
NEWEST_SOFTWARE = 2025.5  # end of the published years
SOFTWARE = "software.csv"
_CONTAINER = re.compile(r"NGC (\d\d)\.(\d\d)")  # NVIDIA's containers are named for their month


def software_year(software: str) -> float:
    """Return the release date of software as a fractional year [years].

    Args:
        software: As a row names it; what is not known, or later than every published row, is taken for the newest.

    Example:
        >>> software_year("PyTorch NGC 20.07"), software_year("Keras 2.1.5 + TensorFlow 1.7.0, CUDA 9.0")
        (2020.5, 2018.167)
        >>> software_year("")
        2025.5
    """
    container = _CONTAINER.search(software)
    if container:
        return min(_year(2000 + int(container[1]), int(container[2])), NEWEST_SOFTWARE)
    named = [name for name in _releases() if name in software]
    return min(_releases()[max(named, key=len)], NEWEST_SOFTWARE) if named else NEWEST_SOFTWARE


def _year(year: int, month: int) -> float:
    return round(year + (month - 1) / 12, 3)


@cache
def _releases() -> dict[str, float]:
    """Return the packaged release dates, by the text that names a release."""
    text = (resources.files("gpuplan.profiles") / SOFTWARE).read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {row["software"]: _year(*map(int, row["released"].split("-"))) for row in rows}
