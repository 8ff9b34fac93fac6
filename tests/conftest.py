"""What all tests share: golden files, and a machine without settings of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE, STDOUT
from types import SimpleNamespace

import pytest
from hypothesis import settings
from warm_process import warm_processes

# A busy machine is no fault of the code that is tested.
settings.register_profile("gpuplan", deadline=None)
settings.load_profile("gpuplan")

GOLDEN = Path(__file__).parent / "golden"
os.environ["GPUPLAN_TODAY"] = "2026-11-25"  # the age of prices widens the costs: the same every day


# For tests that import Keras, and what they start; ~/.keras/keras.json may name a backend that is not here.
os.environ.setdefault("KERAS_BACKEND", "jax")

# NumPy starts as many threads as there are cores in every process: those of two workers wait for one another.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


# A shell starts what it runs in the background with Ctrl-C ignored, and every process that a test starts would
# inherit that. With a handler here they start as on a terminal.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


DURATIONS = Path(__file__).parent / "durations.json"
SHORTEST_KEPT_S = 1.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--update-golden` and `--update-durations`, which write files instead of comparing or reading them."""
    parser.addoption("--update-golden", action="store_true", help="write golden files instead of comparing")
    parser.addoption("--update-durations", action="store_true", help="write tests/durations.json")


def pytest_configure(config: pytest.Config) -> None:
    """Record durations where they are asked for, in the process that hears of every test."""
    if config.getoption("--update-durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(DurationRecorder())


class DurationRecorder:
    """Writes `durations.json`: seconds of set-up, call and tear-down of every test of a second or more."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one phase of one test."""
        self.seconds[report.nodeid.partition("@")[0]] += report.duration  # type: ignore[assignment]

    def pytest_sessionfinish(self) -> None:
        """Write the file, and keep what was recorded of tests that were not selected."""
        known = json.loads(DURATIONS.read_text(encoding="utf-8")) if DURATIONS.exists() else {}
        kept = {name: round(seconds, 1) for name, seconds in self.seconds.items() if seconds >= SHORTEST_KEPT_S}
        rest = {name: seconds for name, seconds in known.items() if name not in self.seconds}
        DURATIONS.write_text(json.dumps(rest | kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep tests that share a module's fixture in one worker, so that it is computed once."""
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("xdist_group") is None:
            known = item._fixtureinfo.name2fixturedefs.values()
            if any(fixture.scope == "module" for fixtures in known for fixture in fixtures):
                item.add_marker(pytest.mark.xdist_group(item.module.__name__))
    if hasattr(config, "workerinput") and DURATIONS.exists():
        _put_longest_first(items)


def _put_longest_first(items: list[pytest.Item]) -> None:
    """Sort tests by the recorded duration of their group, so that no worker is left with a long one at the end."""
    seconds = json.loads(DURATIONS.read_text(encoding="utf-8"))

    def group_of(item: pytest.Item) -> str:
        marker = item.get_closest_marker("xdist_group")
        return str(marker.args[0]) if marker else item.nodeid

    total: Counter[str] = Counter()
    for item in items:
        total[group_of(item)] += seconds.get(item.nodeid, 0.0)
    items.sort(key=lambda item: -total[group_of(item)])


@pytest.fixture(scope="session", autouse=True)
def _no_settings_of_this_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the user's settings and traces out of the tests, and the tests' out of the user's folders."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("GPUPLAN_", "AWS_"))]:
            if name != "GPUPLAN_TODAY":
                patch.delenv(name)
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
        patch.setenv("AWS_CONFIG_FILE", os.devnull)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")  # or boto3 asks the network for credentials
        patch.setenv("GPUPLAN_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("GPUPLAN_DATA_DIR", str(tmp_path_factory.mktemp("data")))
        patch.setenv("GPUPLAN_MEASURE", "false")  # steps are timed where a test asks for it
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _tracing_from_warm_processes() -> Iterator[None]:
    """Fork the processes that trace models from one that has imported Keras; see `cold_processes`."""
    with warm_processes() as start, pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpuplan.child_process.subprocess", SimpleNamespace(Popen=start, PIPE=PIPE, STDOUT=STDOUT))
        yield


@pytest.fixture
def cold_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the processes that trace models from nothing, as users do."""
    monkeypatch.setattr("gpuplan.child_process.subprocess", subprocess)


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
