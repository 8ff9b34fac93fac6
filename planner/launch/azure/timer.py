"""What ends a machine from inside, in shell: with the rights of its own identity, which reach to itself only.

A guest that only shuts down is `Stopped` on Azure and paid for in full
(https://learn.microsoft.com/azure/virtual-machines/states-billing). So the machine asks Azure to delete it and,
where that is refused, to give its hardware back. It asks until it is gone: a role that was just given takes
minutes to be known everywhere.
"""

from __future__ import annotations

from ..shell import quoted

__all__ = ["ending_line", "timer_line"]

# https://learn.microsoft.com/entra/identity/managed-identities-azure-resources/how-to-use-vm-token
_TOKEN = (
    "http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01"
    "&resource=https%3A%2F%2Fmanagement.azure.com%2F"
)
_READ = """python3 -c "import json, sys; print(json.load(sys.stdin)['access_token'])" """.strip()
VERSION = "2026-04-01"
AGAIN_S = 15


def timer_line(resource: str, *, after_s: int) -> str:
    """Return the line that ends a machine after some time, whatever becomes of the script around it.

    Args:
        resource: Path of the machine at Azure Resource Manager.
        after_s: From now [s].
    """
    return f"setsid bash -c {quoted(f'sleep {after_s}; {_loop(resource)}')} > /dev/null 2>&1 &"


def ending_line(resource: str) -> str:
    """Return shell that ends a machine now, and comes back only with the machine's end."""
    return f"bash -c {quoted(_loop(resource))}"


def _loop(resource: str) -> str:
    """Return shell that asks again and again."""
    url = f"https://management.azure.com{resource}"
    ask = 'curl -s -f -m 30 -H "Authorization: Bearer $t"'
    return (
        f"while :; do t=$(curl -s -m 30 -H Metadata:true '{_TOKEN}' | {_READ}); "
        f"{ask} -X DELETE '{url}?api-version={VERSION}' || "
        f"{ask} -X POST -d '' '{url}/deallocate?api-version={VERSION}'; sleep {AGAIN_S}; done"
    )
