"""`gpuplan doctor`: what it sees of an installation, what it never says, and what it calls broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from datetime import date
from importlib import metadata
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from gpuplan.doctor.report import (
    examine_installation,
    find_credentials,
    find_missing,
    find_problems,
    list_extras,
    list_folders,
    parse_required_packages,
    probe_backends,
    read_versions,
)
from gpuplan.settings import load_settings

ROOT = Path(__file__).parents[2]
SECRET = "wJalrXUtnFEMI-K7MDENG-not-a-real-key"
SECRET_VARIABLES = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GCP_API_KEY", "GCP_ACCESS_TOKEN",
    "AZURE_ACCESS_TOKEN", "LAMBDA_API_KEY", "RUNPOD_API_KEY",
)  # fmt: skip


def document(text: str) -> dict[str, Any]:
    """Return the JSON that was printed, held against its published schema."""
    published = json.loads(files("gpuplan.schemas").joinpath("gpuplan.doctor.json").read_text())
    jsonschema.Draft202012Validator.check_schema(published)
    found: dict[str, Any] = json.loads(text)
    jsonschema.validate(found, published)
    return found


def test_a_real_backend_answers_with_its_devices() -> None:
    """JAX is required, so it is always there to be asked; it runs here in a process of its own."""
    (jax,) = probe_backends(["jax"])

    assert jax["error"] is None
    assert jax["facts"]["platform"] in {"cpu", "gpu", "tpu"}
    assert jax["facts"]["count"] >= 1


def test_a_backend_that_cannot_be_loaded_says_why_in_a_line() -> None:
    """An invalid backend fails in the child process; the parent continues, with the child's last line."""
    (broken,) = probe_backends(["thean0"])

    assert (broken["facts"], broken["error"]) == (None, "KeyError: 'thean0'")


def test_a_backend_that_hangs_is_given_up() -> None:
    """A child that takes longer than it may is ended; a backend takes longer than a hundredth of a second."""
    (late,) = probe_backends(["jax"], timeout_s=0.01)

    assert (late["facts"], late["error"]) == (None, "no answer within 0.01 s")


def test_json_has_its_schema_and_the_versions_that_are_installed(gpuplan: Callable[..., Any]) -> None:
    """Versions are those of the very packages that this process runs."""
    import keras

    done = gpuplan("doctor", "--quick", "--json")
    found = document(done.out)

    assert done.code == 0
    assert found["packages"]["keras"] == keras.__version__
    assert found["host"]["python"] == sys.version.split()[0]
    assert found["backends"] == []  # --quick
    assert found["catalog"]["prices"] > 1000


def test_in_a_pipe_it_is_tsv_of_the_same(gpuplan: Callable[..., Any]) -> None:
    """Four columns; every part of the report is there."""
    rows = [line.split("\t") for line in gpuplan("doctor", "--quick").out.splitlines()]

    assert rows[0] == ["part", "what", "value", "note"]
    assert {len(row) for row in rows} == {4}
    assert {row[0] for row in rows[1:]} >= {
        "version",
        "machine",
        "backend",
        "extra",
        "credentials",
        "catalog",
        "folder",
    }


def test_no_secret_is_printed(
    gpuplan: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Keys in the environment, in files and in the address of an endpoint: found by name, never by value."""
    for variable in SECRET_VARIABLES:
        monkeypatch.setenv(variable, SECRET)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(f"[default]\naws_secret_access_key = {SECRET}\n")
    (tmp_path / "gpuplan.toml").write_text(f'[endpoint]\nazure-retail = "https://me:{SECRET}@example.org"\n')
    monkeypatch.chdir(tmp_path)

    printed = gpuplan("doctor", "--quick", "--json"), gpuplan("doctor", "--quick")
    found = document(printed[0].out)

    assert all(SECRET not in done.out + done.err for done in printed)
    assert {p["provider"]: p["where"] for p in found["credentials"]}["aws"] == [
        "AWS_ACCESS_KEY_ID",
        "~/.aws/credentials",
    ]
    assert found["settings"]["endpoint"] == "~/gpuplan.toml"
    assert str(tmp_path) not in json.dumps({**found, "folders": [], "package_folder": ""})


def test_credentials_that_are_nowhere_are_not_found(tmp_path: Path) -> None:
    """An empty variable is none; a file that is named and absent is none, and a finding."""
    environ = {"GCP_API_KEY": "", "GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "gone.json")}

    problems = find_problems({"folders": [], "catalog": None}, environ=environ, today=date(2026, 11, 1))

    assert [place["where"] for place in find_credentials(environ=environ, home=tmp_path)] == [[]] * 3
    assert [finding.text for finding in problems] == [
        "GOOGLE_APPLICATION_CREDENTIALS names a file that does not exist"
    ]


def test_settings_that_cannot_be_read_are_an_error_not_an_end(
    gpuplan: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Every other command stops at a broken file; the doctor tells of it, with all the rest, and ends with 1."""
    (tmp_path / "gpuplan.toml").write_text("regions = 'us-east-1\n")
    monkeypatch.chdir(tmp_path)

    done = gpuplan("doctor", "--quick", "--json")
    (error,) = [finding for finding in document(done.out)["findings"] if finding["level"] == "error"]

    assert done.code == 1
    assert "gpuplan.toml is not valid TOML" in error["text"]
    assert error["hint"] == "correct the file, or remove it"


def test_a_catalog_that_cannot_be_read_is_an_error(
    gpuplan: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The rest of the report is still there."""
    monkeypatch.setenv("GPUPLAN_CATALOG_DIR", str(tmp_path / "gone"))

    done = gpuplan("doctor", "--quick", "--json")
    found = document(done.out)

    assert (done.code, found["catalog"], found["machine"]) == (1, None, None)
    assert found["packages"]["keras"]


def test_a_backend_that_is_not_installed_and_old_prices_are_warnings() -> None:
    """Nothing of it keeps gpuplan from working. Ten years on, every price is old."""
    report = examine_installation(
        environ={**os.environ, "KERAS_BACKEND": "openvino"}, today=date(2036, 1, 1), ask_devices=False
    )
    texts = [finding["text"] for finding in report["findings"]]

    assert all(finding["level"] == "warning" for finding in report["findings"])
    assert "KERAS_BACKEND is `openvino`, which is not installed" in texts
    assert any(text.startswith("prices older than 90 days") and "aws" in text for text in texts)


def test_folders_are_those_of_the_project_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`cache_dir` and `data_dir` of `gpuplan.toml`, where the environment says nothing."""
    monkeypatch.delenv("GPUPLAN_CACHE_DIR")
    (tmp_path / "gpuplan.toml").write_text('cache_dir = "cache"\ndata_dir = "data"\n')
    settings = load_settings(environ={}, folder=tmp_path, user_file=tmp_path / "none.toml")
    found = {folder["name"]: Path(folder["path"]) for folder in list_folders(settings)}

    assert found["traced workloads"] == tmp_path / "cache" / "workloads"
    assert found["measured runs"] == tmp_path / "data" / "runs"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Traces are not kept then; estimates still work."""
    tmp_path.chmod(0o500)
    monkeypatch.setenv("GPUPLAN_CACHE_DIR", str(tmp_path))
    texts = [
        f["text"]
        for f in examine_installation(environ=os.environ, today=date.today(), ask_devices=False)["findings"]
    ]
    tmp_path.chmod(0o700)

    assert any(text.startswith("the traced workloads folder is not writable") for text in texts)


def test_extras_are_those_that_can_be_installed() -> None:
    """The extras for users in pyproject.toml are listed, and no others."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    known = {name for name in project["optional-dependencies"] if not name.startswith(("test", "docs"))}

    assert {extra["name"] for extra in list_extras()} == known


def test_an_extra_is_missing_what_cannot_be_found() -> None:
    """Of a package that is absent, a module inside is absent too, without an error."""
    missing = find_missing(("json", "no_such_package", "no_such_package.inside"))

    assert missing == ["no_such_package", "no_such_package.inside"]


def test_required_packages_are_the_projects() -> None:
    """Required packages are those of pyproject.toml without extras; all of them are installed here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = list(parse_required_packages(project["dependencies"]))

    assert len(required) == len(project["dependencies"])
    assert all(metadata.version(name) for name in required)
    assert {"jax", "keras", "numpy"} <= set(read_versions())


def test_no_backend_is_loaded_by_the_parent() -> None:
    """A quick look loads neither Keras nor a backend: it takes a second, and touches no GPU."""
    probe = (
        "import sys; from gpuplan.cli.app import run; run(['doctor', '--quick', '--json']);"
        "sys.stderr.write(str([m for m in ('keras', 'jax', 'tensorflow', 'torch') if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)

    assert done.stderr == "[]"
