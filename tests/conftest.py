"""What all tests share: golden files, and a machine without settings of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine is no fault of the code that is tested.
settings.register_profile("gpuplan", deadline=None)
settings.load_profile("gpuplan")

GOLDEN = Path(__file__).parent / "golden"


# A shell starts what it runs in the background with Ctrl-C ignored, and every process that a test starts would
# inherit that. With a handler here they start as on a terminal.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--update-golden`, which writes the golden files anew instead of comparing."""
    parser.addoption("--update-golden", action="store_true", help="write golden files instead of comparing")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep tests that share a module's fixture in one worker, so that it is worked out once."""
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("xdist_group") is None:
            known = item._fixtureinfo.name2fixturedefs.values()
            if any(fixture.scope == "module" for fixtures in known for fixture in fixtures):
                item.add_marker(pytest.mark.xdist_group(item.module.__name__))


@pytest.fixture(scope="session", autouse=True)
def _no_settings_of_this_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the user's settings and traces out of the tests, and the tests' out of the user's folders."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("GPUPLAN_", "AWS_"))]:
            patch.delenv(name)
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
        patch.setenv("AWS_CONFIG_FILE", os.devnull)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")  # or boto3 asks the network for credentials
        if (
            "KERAS_BACKEND" not in os.environ
        ):  # nor ~/.keras/keras.json, which may name a backend that is not here
            patch.setenv("KERAS_BACKEND", "jax")
        patch.setenv("GPUPLAN_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("GPUPLAN_DATA_DIR", str(tmp_path_factory.mktemp("data")))
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Return a function that compares text with a golden file, or writes it with `--update-golden`."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8"), f"{name} differs; see `pytest --update-golden`"

    return compare
