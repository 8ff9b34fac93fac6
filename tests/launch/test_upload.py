"""What an upload holds: the code, and never a secret, whatever the folder's own rules say."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest
from gpuplan.launch.core.upload import LEFT_OUT, build_archive, list_upload_files

SECRETS = (
    ".netrc", "certs/server.pem", "deploy/tls.key", "keys/id_rsa", "keys/id_ed25519.pub", ".env", ".env.local",
    ".config/gcloud/creds.db", "home/.config/gcloud/creds.db", ".aws/credentials", ".azure/token.json",
    ".kube/config", ".docker/config.json", ".git-credentials", ".pypirc", "app/.envrc", ".git/config",
    ".ssh/config", "application_default_credentials.json", ".kaggle/kaggle.json",
)  # fmt: skip
KEPT = ("train.py", "data/a.npz", "docs/environment.md", "conf/docker/config.json", "keyboard.py")


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
