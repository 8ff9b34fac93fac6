"""What an upload holds: the code, and never a secret, whatever the folder's own rules say."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest
from gpuplan.launch.core.upload import LEFT_OUT, build_archive, describe_secrets, list_upload_files

SECRETS = (
    ".netrc", "certs/server.pem", "deploy/tls.key", "keys/id_rsa", "keys/id_ed25519.pub", ".env", ".env.local",
    ".config/gcloud/creds.db", "home/.config/gcloud/creds.db", ".aws/credentials", ".azure/token.json",
    ".kube/config", ".docker/config.json", ".git-credentials", ".pypirc", "app/.envrc", ".git/config",
    ".ssh/config", "application_default_credentials.json", ".kaggle/kaggle.json", ".pgpass", ".vault-token",
    ".dockercfg", "credentials.json", "client_secret_12.apps.json", "secrets.toml", "conf/secrets.yaml",
    "secrets.yml", ".streamlit/secrets.toml", ".dbt/profiles.yml", "prod.env", "deploy_rsa",
    ".my.cnf", "me_accessKeys.csv", ".config/gh/hosts.yml", ".modal.toml", ".cdsapirc", ".bash_history",
    "prod.tfvars", "hf_token", ".config/rclone/rclone.conf",
)  # fmt: skip
KEPT = (
    "train.py", "data/a.npz", "docs/environment.md", "conf/docker/config.json", "keyboard.py", "keypoints.json",
    "credentials.py", "secrets.py", "tokenizer.json", "api_key.py", "hf_tokenizer.json", "env.yaml",
)  # fmt: skip
KEYS = {
    "gcp-key.json": '{"private_key_id": "1", "private_key": "-----BEGIN PRIVATE KEY-----"}',
    "sp.json": '{"clientId": "1", "clientSecret": "s"}',
    "token.json": '{"token": "t", "refresh_token": "r"}',
    "aws.json": '{"SecretAccessKey" : "s"}',
    "deploy/host": "-----BEGIN OPENSSH PRIVATE KEY-----\n",
}


def written(folder: Path, *names: str, text: str = "x") -> Path:
    """Write files and return their folder."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def names(folder: Path) -> list[str]:
    """Return the relative names of the files that an upload of a folder holds."""
    return [path.relative_to(folder).as_posix() for path in list_upload_files(folder)]


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_stays_here(tmp_path: Path, secret: str) -> None:
    """Also when a `.gitignore` asks for it."""
    written(tmp_path, *KEPT, secret)
    (tmp_path / ".gitignore").write_text(f"!{secret}\n!{Path(secret).name}\n")

    assert names(tmp_path) == sorted([".gitignore", *KEPT])


@pytest.mark.parametrize("name", sorted(KEYS))
def test_a_key_of_any_name_stays_here(tmp_path: Path, name: str) -> None:
    """By its content; a file that only speaks of keys is sent."""
    written(tmp_path, name, text=KEYS[name])
    written(tmp_path, "keypoints.json", text='{"keypoints": [{"private": true, "key": "nose"}]}')

    assert names(tmp_path) == ["keypoints.json"]


def test_what_stays_here_as_secret_is_told_in_a_line(tmp_path: Path) -> None:
    """Not what git ignores, nor what is made again; of another provider than this computer, of a folder only."""
    written(tmp_path, "train.py", ".venv/pyvenv.cfg", "ignored.pem", *(f"{number}.pem" for number in range(6)))
    (tmp_path / ".gitignore").write_text("ignored.pem\n")
    source = f"folder:{tmp_path}"

    assert describe_secrets(source, remote=True) == (
        "not uploaded, since they may hold secrets: '0.pem', '1.pem', '2.pem', '3.pem', '4.pem' and 1 more; "
        "to send one that holds none, rename it"
    )
    assert describe_secrets(source, remote=False) == describe_secrets("git:https://h/r", remote=True) == ""
    (tmp_path / "5.pem").unlink()
    assert "'4.pem'; to send" in describe_secrets(source, remote=True)
    for number in range(5):
        (tmp_path / f"{number}.pem").unlink()
    assert describe_secrets(source, remote=True) == ""


def test_a_virtual_environment_of_any_name_stays_here(tmp_path: Path) -> None:
    """PEP 405: it is the folder with `pyvenv.cfg`."""
    written(tmp_path, "train.py", "my-env/pyvenv.cfg", "my-env/lib/site.py", "venv/lib/x.py")

    assert names(tmp_path) == ["train.py"]


def test_gitignore_is_read_as_git_reads_it(tmp_path: Path) -> None:
    """The reference is git itself: files in subfolders, rules that bring back, rules for folders alone."""
    written(
        tmp_path,
        "train.py",
        "a.log",
        "keep.log",
        "runs/1/events",
        "src/runs",
        "src/local.cfg",
        "src/a.log",
        "src/deep/local.cfg",
        "data/x",
        "data/y/z",
    )
    (tmp_path / ".gitignore").write_text("*.log\n!keep.log\nruns/\n/data/*\n!/data/y\n")
    (tmp_path / "src" / ".gitignore").write_text("!a.log\n/local.cfg\n")
    git = ["git", "-C", str(tmp_path), "-c", "core.excludesFile=/dev/null"]
    subprocess.run([*git, "init", "-q"], check=True)
    listed = subprocess.run(
        [*git, "ls-files", "--others", "--exclude-standard"], check=True, capture_output=True, text=True
    )

    assert sorted(names(tmp_path)) == sorted(listed.stdout.splitlines())


def test_links_are_not_followed(tmp_path: Path) -> None:
    """A link out of the folder brings nothing along; the archive holds the link."""
    outside = written(tmp_path / "outside", "secret.txt", text="secret")
    folder = written(tmp_path / "code", "train.py")
    (folder / "link").symlink_to(outside)
    packed = build_archive({"tar_gz_of": str(folder), "except": list(LEFT_OUT)})

    with tarfile.open(fileobj=io.BytesIO(packed)) as file:
        assert {member.name: member.isfile() for member in file} == {"./train.py": True, "./link": False}


@pytest.mark.parametrize(("size", "is_sent"), [(65_536, False), (65_537, True)])
def test_files_of_up_to_64_kib_are_searched_for_keys(tmp_path: Path, size: int, is_sent: bool) -> None:
    """A longer one is data."""
    folder = written(tmp_path, "some.json", text=KEYS["aws.json"].ljust(size))

    assert [path.name for path in list_upload_files(folder)] == (["some.json"] if is_sent else [])
