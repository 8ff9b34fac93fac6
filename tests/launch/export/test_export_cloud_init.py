"""cloud-init: held to its own schema where its package is installed, as on Debian; else by its parts."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from gpuplan.errors import NoAnswerError
from gpuplan.render.export import format_export
from launch.export.plans import export_of

MACHINES = ("aws", "aws-spot", "gcp-attached", "gcp-spot", "gcp-cpu")
SCHEMA = Path(
    os.environ.get(
        "CLOUD_INIT_SCHEMA",
        "/usr/lib/python3/dist-packages/cloudinit/config/schemas/schema-cloud-config-v1.json",
    )
)


def document(folder: Path, key: str, **more: Any) -> dict[str, Any]:
    """The document as cloud-init reads the written file."""
    text = format_export(export_of(folder, key, "cloud-init", **more))
    assert text.startswith("#cloud-config\n# ")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


@pytest.mark.skipif(not SCHEMA.exists(), reason="cloud-init's schema is not here: CLOUD_INIT_SCHEMA=FILE")
@pytest.mark.parametrize("key", MACHINES)
def test_cloud_inits_own_schema_takes_it(key: str, tmp_path: Path) -> None:
    """schema-cloud-config-v1.json of canonical/cloud-init; a wrong key is refused by it."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    found = document(tmp_path, key)
    jsonschema.Draft4Validator(schema).validate(found)

    found["power_state"]["mode"] = "terminate"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft4Validator(schema).validate(found)


@pytest.mark.parametrize("key", MACHINES)
def test_the_timer_comes_before_the_code_and_the_end_after_it(key: str, tmp_path: Path) -> None:
    """A timer in the first boot stage and one in the script; power off when all stages are over."""
    found = document(tmp_path, key, arguments=("--name", "it's $(reboot)"))
    (file,) = found["write_files"]
    lines = file["content"].splitlines()

    assert found["bootcmd"] == ["setsid bash -c 'sleep 9900; systemctl poweroff' > /dev/null 2>&1 &"]
    assert lines[1] == "shutdown -h +165"
    assert found["runcmd"] == [["bash", file["path"]]]
    assert found["power_state"]["mode"] == "poweroff"
    assert subprocess.run(["bash", "-n"], input=file["content"], text=True, check=False).returncode == 0
    assert lines[-1].endswith("""python train.py --name 'it'"'"'s $(reboot)'""")


@pytest.mark.parametrize("key", MACHINES)
def test_the_command_that_starts_it_ends_it_too(key: str, tmp_path: Path) -> None:
    """Powering off terminates on AWS; on Google Cloud the duration is part of the machine."""
    found = export_of(tmp_path, key, "cloud-init")
    wanted = (
        "--instance-initiated-shutdown-behavior terminate"
        if key.startswith("aws")
        else "--max-run-duration=9900s --instance-termination-action=DELETE"
    )
    assert wanted in found["apply"]
    assert "f.yaml" in found["apply"]


@pytest.mark.parametrize("key", ["azure", "lambda", "gcp-tpu"])
def test_where_powering_off_does_not_end_the_billing_it_is_refused(key: str, tmp_path: Path) -> None:
    """Azure bills a machine that is stopped from inside; Lambda one that was not terminated."""
    with pytest.raises(NoAnswerError):
        export_of(tmp_path, key, "cloud-init")
