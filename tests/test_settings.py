"""Settings: which source wins, and what is wrong in a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpuplan.errors import UsageError
from gpuplan.settings import PERSONAL, load_settings

NOWHERE = Path("/nonexistent/gpuplan.toml")


def test_without_anything_the_defaults_hold(tmp_path: Path) -> None:
    """Everything from the defaults, and the origins say so."""
    settings = load_settings(environ={}, folder=tmp_path, user_file=NOWHERE)

    assert (settings.cache_dir, settings.catalog_dir, settings.providers, settings.regions) == (None, None, (), ())
    assert set(settings.origins.values()) == {"default"}


def test_the_stronger_source_wins(tmp_path: Path) -> None:
    """Flag > environment > project file > user file, setting by setting."""
    user = tmp_path / "user.toml"
    user.write_text('providers = ["vast"]\nregions = ["user"]\ncache_dir = "cache"\ncatalog_dir = "mine"\n')
    project = tmp_path / "project"
    project.mkdir()
    (project / "gpuplan.toml").write_text('providers = ["gcp"]\nregions = ["project"]\ncache_dir = "/c"\n')

    settings = load_settings(
        environ={"GPUPLAN_PROVIDERS": "aws, azure", "GPUPLAN_REGIONS": "variable"},
        folder=project,
        user_file=user,
        flags={"regions": ("flag",), "providers": ()},
    )

    assert settings.regions == ("flag",)
    assert settings.providers == ("aws", "azure")
    assert settings.cache_dir == Path("/c")
    assert settings.catalog_dir == tmp_path / "mine", "relative folders count from the file"
    assert {name: origin for name, origin in settings.origins.items() if origin != "default"} == {
        "regions": "flag",
        "providers": "GPUPLAN_PROVIDERS",
        "cache_dir": str(project / "gpuplan.toml"),
        "catalog_dir": str(user),
    }


def test_the_nearest_project_file_speaks(tmp_path: Path) -> None:
    """A pyproject.toml without our table is passed over; `gpuplan.toml` goes before one with it."""
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "pyproject.toml").write_text('[tool.gpuplan]\nregions = ["outer"]\n')
    (inner / "pyproject.toml").write_text("[tool.other]\nx = 1\n")

    assert load_settings(environ={}, folder=inner, user_file=NOWHERE).regions == ("outer",)

    (tmp_path / "gpuplan.toml").write_text('regions = ["own"]\n')
    assert load_settings(environ={}, folder=inner, user_file=NOWHERE).regions == ("own",)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ('provider = ["aws"]', "unknown setting `provider` in", "did you mean `providers`"),
        ("regions = 5", "`regions` in .* is not a list of names: 5", "write it as"),
        ("cache_dir = []", r"`cache_dir` in .* is not a folder: \[\]", "path in quotes"),
        ("regions = [", "is not valid TOML", "correct the file"),
    ],
)
def test_mistakes_in_a_file(tmp_path: Path, text: str, message: str, hint: str) -> None:
    """What, in which file, and how to write it."""
    (tmp_path / "gpuplan.toml").write_text(text)

    with pytest.raises(UsageError, match=message) as caught:
        load_settings(environ={}, folder=tmp_path, user_file=NOWHERE)

    assert hint in (caught.value.hint or "")
    assert "gpuplan.toml" in str(caught.value)


@pytest.mark.parametrize("name", sorted(PERSONAL))
def test_a_project_may_not_give_away_secrets_or_take_risks(tmp_path: Path, name: str) -> None:
    """Its file may be another's: the variable and the user's own file set these, and the hint says so."""
    user = tmp_path / "user.toml"
    user.write_text(f"{name} = {['HF_TOKEN'] if name == 'script_env' else 'true'}\n".replace("'", '"'))
    read = load_settings(environ={}, folder=tmp_path, user_file=user)
    assert read.origins[name] == str(user)

    (tmp_path / "gpuplan.toml").write_text(user.read_text())
    with pytest.raises(UsageError, match=f"`{name}` in .*: a project file may not set it") as caught:
        load_settings(environ={}, folder=tmp_path, user_file=NOWHERE)
    assert f"GPUPLAN_{name.upper()}" in (caught.value.hint or "")


def test_preferences_of_launches_and_traces(tmp_path: Path) -> None:
    """From a file with their own types, from variables as text."""
    (tmp_path / "gpuplan.toml").write_text('fallbacks = 0\nstop_loss = "stop"\ntrace_cache = false\n')
    read = load_settings(
        environ={"GPUPLAN_KEEP_RUNS": "false", "GPUPLAN_REQUIREMENTS": "r.txt"}, folder=tmp_path, user_file=NOWHERE
    )

    assert (read.fallbacks, read.stop_loss, read.trace_cache) == (0, "stop", False)
    assert (read.keep_runs, read.requirements, read.quota) == (False, "r.txt", False)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("trace_cache", "no", "is neither true nor false"),
        ("fallbacks", "-1", "is not a number of offers"),
        ("stop_loss", "panic", "is no action"),
    ],
)
def test_preferences_of_the_wrong_kind(tmp_path: Path, name: str, value: str, message: str) -> None:
    """One line with the variable."""
    with pytest.raises(UsageError, match=f"GPUPLAN_{name.upper()} {message}"):
        load_settings(environ={f"GPUPLAN_{name.upper()}": value}, folder=tmp_path, user_file=NOWHERE)
