"""Export to a configuration of Terraform or OpenTofu, in its JSON form.

https://developer.hashicorp.com/terraform/language/syntax/json: one machine with its start-up script, what it needs
of the network, and a cap that the cloud keeps.
"""

from __future__ import annotations

from .machine import MACHINE_LIMITS, describe_script_end
from .task import EngineDocument, ExportTask
from .terraform_aws import build_aws_machine
from .terraform_azure import build_azure_machine
from .terraform_google import build_google_machine

_BUILDERS = {"aws": build_aws_machine, "gcp": build_google_machine, "azure": build_azure_machine}
PROVIDERS = tuple(_BUILDERS)
VERSIONS = {
    "aws": {"source": "hashicorp/aws", "version": ">= 5.60"},
    "azurerm": {"source": "hashicorp/azurerm", "version": ">= 4.20"},
    "google": {"source": "hashicorp/google", "version": ">= 6.10"},
    "time": {"source": "hashicorp/time", "version": ">= 0.9"},
}
AGAIN = "`terraform apply` after the machine has ended itself starts the run again: `terraform destroy` first"
FOLDER = "terraform -chdir=run"


def build_configuration(task: ExportTask) -> EngineDocument:
    """Return the configuration of a machine of the task's provider."""
    task.require_source("git", engine="Terraform")
    task.require_no_tpu(engine="Terraform")
    machine = _BUILDERS[task.provider](task)
    document = {
        "terraform": {
            "required_version": ">= 1.5",
            "required_providers": {name: VERSIONS[name] for name in machine.providers},
        },
        "provider": {machine.providers[0]: machine.settings},
        **machine.blocks,
    }
    return EngineDocument(
        document=document,
        apply=f"mkdir -p run && cp FILE run/main.tf.json && {FOLDER} init && {FOLDER} apply",
        stop=f"{FOLDER} destroy",
        stops=(*machine.stops, *describe_script_end(task)),
        open=(*machine.limits, AGAIN, *MACHINE_LIMITS),
    )
