"""What a script sees of the caller's environment: what it needs, and no credentials."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest
from gpuplan.errors import UsageError
from gpuplan.workload.capture.load import WorkloadOptions, load_workload
from gpuplan.workload.capture.process import build_process_environment, require_variables
from gpuplan.workload.options import ScriptOptions

PLANTED = "planted-credential"
CREDENTIALS = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_API_KEY", "GOOGLE_OAUTH_ACCESS_TOKEN", "CLOUDSDK_AUTH_ACCESS_TOKEN",
    "CLOUDSDK_CONFIG", "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID", "AZURE_CLIENT_ID", "ARM_CLIENT_SECRET",
    "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "WANDB_API_KEY", "KAGGLE_KEY", "KAGGLE_USERNAME", "OPENAI_API_KEY",
    "GITHUB_TOKEN", "GH_TOKEN", "CI_JOB_TOKEN", "NPM_TOKEN", "PYPI_PASSWORD", "DATABASE_URL", "PGPASSWORD",
    "MYSQL_PWD", "SSH_AUTH_SOCK", "NETRC", "KUBECONFIG", "DOCKER_CONFIG", "DOCKER_AUTH_CONFIG", "VAULT_TOKEN",
    "RUNPOD_API_KEY", "VAST_API_KEY", "LAMBDA_API_KEY", "GPUPLAN_OWNER", "GPUPLAN_ENDPOINT_AWS", "STRIPE_SK",
    # behind a prefix that is let through
    "TF_VAR_admin", "TF_XLA_SECRET", "JAX_API_KEY", "KERAS_HUB_TOKEN", "PYTHON_KEYRING_PASSWORD",
    "TORCH_PASSPHRASE", "CUDA_AUTH",
)  # fmt: skip
NEEDED = {
    "PATH": "/bin", "HOME": "/home/me", "LANG": "C.UTF-8", "LC_ALL": "C", "PYTHONPATH": "/src",
    "PYTHONHASHSEED": "0",
    "VIRTUAL_ENV": "/venv", "LD_LIBRARY_PATH": "/lib", "CUDA_VISIBLE_DEVICES": "0", "CUDA_HOME": "/cuda",
    "XLA_FLAGS": "--xla", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.5", "JAX_PLATFORMS": "cpu",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "KERAS_BACKEND": "jax", "KERAS_HOME": "/keras", "TORCH_HOME": "/torch", "OMP_NUM_THREADS": "2",
    "TMPDIR": "/tmp",
    "HF_HOME": "/hf", "TPU_NAME": "local", "NVIDIA_VISIBLE_DEVICES": "all", "SSL_CERT_FILE": "/ca",
    "no_proxy": "*",
}  # fmt: skip
# What the SDKs find, with the files of a home folder that holds credentials for all of them.
LOOK = """
import json, os
import boto3, google.auth, google.auth.exceptions, requests.utils
found = {"aws": boto3.Session().get_credentials() is not None}
try:
    found["google"] = google.auth.default()[0] is not None
except google.auth.exceptions.DefaultCredentialsError:
    found["google"] = False
found["netrc"] = requests.utils.get_netrc_auth("https://example.com") is not None
with open(os.path.join(os.path.dirname(__file__), "seen.json"), "w") as file:
    json.dump({"environment": dict(os.environ), "found": found}, file)
"""
MODEL = """
import keras, numpy as np
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse")
model.fit(np.zeros((8, 4)), np.zeros((8, 1)))
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with credentials, and an environment full of them."""
    folder = tmp_path / "home"
    for name, text in {
        ".aws/credentials": f"[default]\naws_access_key_id = {PLANTED}\naws_secret_access_key = {PLANTED}\n",
        ".config/gcloud/application_default_credentials.json": json.dumps(
            {"type": "authorized_user", "client_id": PLANTED, "client_secret": PLANTED, "refresh_token": PLANTED}
        ),
        ".netrc": f"machine example.com login me password {PLANTED}\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(folder))
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "CLOUDSDK_CONFIG", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    return folder


def seen_by(folder: Path, *variables: str) -> dict[str, dict[str, str | bool]]:
    """Return what a script sees that is traced with some variables let through."""
    (folder / "train.py").write_text(LOOK + MODEL)
    options = WorkloadOptions(use_cache=False, script=ScriptOptions(variables=variables))
    load_workload("train.py", options=options, base=folder)
    seen: dict[str, dict[str, str | bool]] = json.loads((folder / "seen.json").read_text())
    return seen


def test_no_credential_is_seen_and_everything_needed_is(tmp_path: Path) -> None:
    """The rule itself, on an environment that holds both; temporary files go to the process's own folder."""
    environ = dict.fromkeys(CREDENTIALS, PLANTED) | NEEDED
    seen = build_process_environment((), tmp_path, environ=environ)

    assert PLANTED not in json.dumps(seen)
    assert {name: seen.get(name) for name in NEEDED} == NEEDED | {"TMPDIR": str(tmp_path / "tmp")}


def test_a_real_script_sees_no_credential_and_no_sdk_finds_one(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """boto3, google-auth and requests look where their files lie: none of them finds its credentials there."""
    pytest.importorskip("boto3")
    pytest.importorskip("google.auth")
    for name in CREDENTIALS:
        monkeypatch.setenv(name, PLANTED)
    seen = seen_by(tmp_path)

    assert PLANTED not in json.dumps(seen)
    assert seen["found"] == {"aws": False, "google": False, "netrc": False}
    assert seen["environment"]["HOME"] == str(home)
    assert seen["environment"]["PATH"] == os.environ["PATH"]
    assert not Path(str(seen["environment"]["CLOUDSDK_CONFIG"])).exists(), "the empty folder is removed"


def test_a_named_variable_is_let_through_as_it_is(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Set, it has the caller's value; not set, the SDK looks where it does without gpuplan."""
    pytest.importorskip("boto3")
    pytest.importorskip("google.auth")
    monkeypatch.setenv("HF_TOKEN", PLANTED)
    monkeypatch.setenv("KAGGLE_KEY", PLANTED)
    seen = seen_by(tmp_path, "HF_TOKEN", "AWS_SHARED_CREDENTIALS_FILE")

    assert seen["environment"]["HF_TOKEN"] == PLANTED
    assert "KAGGLE_KEY" not in seen["environment"]
    assert seen["found"] == {"aws": True, "google": False, "netrc": False}


def test_a_proxy_is_passed_on_without_its_password(tmp_path: Path) -> None:
    """Both spellings, with and without a scheme; a proxy that needs no password is passed on as it is."""
    environ = {
        "HTTPS_PROXY": "http://me:pw@proxy.example:3128",
        "http_proxy": "me:pw@proxy.example:3128",
        "ALL_PROXY": "socks5://proxy.example:1080",
    }
    seen = build_process_environment((), tmp_path, environ=environ)

    assert {name: seen[name] for name in environ} == {
        "HTTPS_PROXY": "http://proxy.example:3128",
        "http_proxy": "proxy.example:3128",
        "ALL_PROXY": "socks5://proxy.example:1080",
    }


def test_a_variable_that_is_not_set_cannot_be_let_through() -> None:
    """A misspelt name is an error, and so is a value."""
    require_variables(("HF_TOKEN", "AWS_CONFIG_FILE"), environ={"HF_TOKEN": "x"})
    for wrong in ("HF_TOKNE", "HF_TOKEN=x"):
        with pytest.raises(UsageError, match="is not set"):
            require_variables((wrong,), environ={"HF_TOKEN": "x"})


def test_temporary_files_of_a_script_end_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that it leaves, and a folder that Python removes at an end, which a process that is stopped lacks."""
    temporary, named = tmp_path / "temporary", tmp_path / "named"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    before = "import tempfile\nfile, folder = tempfile.mkstemp()[1], tempfile.TemporaryDirectory()\n"
    before += f"open({str(named)!r}, 'w').write(f'{{file}} {{folder.name}}')\n"
    (tmp_path / "train.py").write_text(before + MODEL)
    load_workload("train.py", options=WorkloadOptions(use_cache=False), base=tmp_path)

    assert [Path(one).is_relative_to(temporary) for one in named.read_text().split()] == [True, True]
    assert list(temporary.iterdir()) == []


def test_another_value_is_traced_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache knows which values a script saw."""
    width_seen = "int(__import__('os').environ['WIDTH'])"
    model = MODEL.replace("Dense(1)", f"Dense({width_seen})").replace("(8, 1)", f"(8, {width_seen})")
    (tmp_path / "train.py").write_text(model)
    options = WorkloadOptions(script=ScriptOptions(variables=("WIDTH",)))
    parameters = []
    for width in ("3", "6"):
        monkeypatch.setenv("WIDTH", width)
        parameters.append(load_workload("train.py", options=options, base=tmp_path).parameters)

    assert parameters == [4 * 3 + 3, 4 * 6 + 6]


def test_a_script_that_misses_a_variable_says_how_to_let_it_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`os.environ[...]` of a variable that is withheld."""
    monkeypatch.setenv("DATA_DIR", "/data")
    (tmp_path / "train.py").write_text("import os\nprint(os.environ['DATA_DIR'])\n")
    with pytest.raises(Exception, match="KeyError") as caught:
        load_workload("train.py", options=WorkloadOptions(use_cache=False), base=tmp_path)

    assert "GPUPLAN_SCRIPT_ENV=DATA_DIR" in caught.value.hint  # type: ignore[attr-defined]
