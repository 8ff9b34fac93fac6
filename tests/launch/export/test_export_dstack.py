"""dstack's own parser, which takes no key that it does not know."""

from __future__ import annotations

from pathlib import Path

import pytest
from launch.export.plans import GIT, OFFERS, export_of

pytest.importorskip("dstack", reason="dstack is not installed: pip install dstack")

TAKEN = [key for key in OFFERS if key not in {"colab", "gcp-part", "gcp-slice", "trainium"}]


@pytest.mark.parametrize("key", TAKEN)
def test_the_parser_of_dstack_takes_every_export(key: str, tmp_path: Path) -> None:
    """From a folder, git and a container; what it reads is what was meant."""
    from dstack._internal.core.models.configurations import parse_apply_configuration

    for source in (f"folder:{tmp_path}", GIT, "image:example.org/me/train:1"):
        read = parse_apply_configuration(export_of(tmp_path, key, "dstack", source=source)["document"])
        assert read.max_duration == 9900
        assert read.idle_duration == 300
        assert read.spot_policy == ("spot" if OFFERS[key]["purchase"] == "spot" else "on-demand")
        assert read.max_price == pytest.approx(1.1)


def test_it_refuses_a_key_that_it_does_not_know(tmp_path: Path) -> None:
    from dstack._internal.core.errors import ConfigurationError
    from dstack._internal.core.models.configurations import parse_apply_configuration

    document = export_of(tmp_path, "aws", "dstack")["document"]
    with pytest.raises(ConfigurationError, match="max_durations"):
        parse_apply_configuration({**document, "max_durations": "1h"})
