"""Azure over TLS as a world for fault sequences."""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

from gpuplan.launch.clouds.azure.adapter import AzureAdapter
from gpuplan.launch.clouds.azure.attempt import BOOT_ALLOWANCE_S
from gpuplan.launch.core.request import LaunchCandidate
from launch.bench_on_sockets import candidate
from launch.cloud_server import ServerProcess
from launch.fault_world import CapMode
from launch.sockets_world import SocketsWorld

OFFER = "Standard_NC4as_T4_v3"
SUBSCRIPTION = "11111111-2222-3333-4444-555555555555"
AMISS = ("disabled", "machine", "time", "zone", "task")  # orders that are not what was asked for
CREATE = "virtualMachines.createOrUpdate"
ALTERED = sorted(set(AMISS) - {"task", "zone"})  # an answer with another one would break the vendor's own model


class AzureWorld(SocketsWorld):
    """GPU machines."""

    provider = "azure"
    modes: tuple[CapMode, ...] = ("both", "cloud")
    disarming = (
        ("globalSchedules.createOrUpdate", "before", "forbidden"),
        *product(("globalSchedules.createOrUpdate",), ("unarmed",), ALTERED),
    )
    slack_s = BOOT_ALLOWANCE_S
    faults = (
        *product((CREATE,), ("before",), ("reset", "garbage", "http500", "throttle", "forbidden", "unauthorized",
                                          "invalid")),
        *product((CREATE,), ("refuse",), ("capacity", "quota")),
        *product((CREATE,), ("async",), ("AllocationFailed", "OperationNotAllowed")),
        *product((CREATE,), ("after",), ("reset", "garbage", "http500")),
        *product(("resourceGroups.createOrUpdate", "networkInterfaces.createOrUpdate"), ("before", "after"),
                 ("reset", "http503")),
        *product(("virtualNetworks.createOrUpdate",), ("before",), ("busy", "throttle")),
        *product(("virtualMachines.delete", "resourceGroups.delete"), ("before", "after"),
                 ("reset", "http503", "forbidden")),
        *product(("virtualMachines.listAll",), ("before",), ("http503", "unauthorized")),
        *product(("virtualMachines.get",), ("before",), ("http500", "reset")),
        *product(("roleAssignments.createOrUpdate",), ("before",), ("principal", "forbidden", "reset")),
        ("roleAssignments.createOrUpdate", "after", "reset"),
        *product(("roleAssignments.createOrUpdate",), ("unarmed",), ("yes", "principal")),
        ("globalSchedules.createOrUpdate", "before", "forbidden"),
        *product(("globalSchedules.createOrUpdate",), ("unarmed",), ALTERED),
        ("invisible", "before", "20"),
    )  # fmt: skip
    losing = ((CREATE, "after", "reset"), ("invisible", "before", "30"))
    refusing = ((CREATE, "after", "reset"), (CREATE, "refuse", "capacity"))

    def adapter(self, state_dir: Path) -> Any:
        return AzureAdapter(state_dir=state_dir, clock=self.clock)

    def candidates(self) -> tuple[LaunchCandidate, ...]:
        return (candidate(OFFER, "eastus", purchase="spot"), candidate(OFFER, "westus2"))


@contextmanager
def azure_server(folder: Path) -> Iterator[ServerProcess]:
    """Start the server with a certificate of its own."""
    certificate = self_signed(folder)
    process = ServerProcess(
        Path(__file__).with_name("server.py"), str(certificate), scheme="https", verify=str(certificate)
    )
    try:
        yield process
    finally:
        process.close()


def azure_environment(server: ServerProcess) -> dict[str, str]:
    """Return what points the adapter and `azure-identity` at the server, and nowhere else."""
    return {
        "AZURE_SUBSCRIPTION_ID": SUBSCRIPTION,
        "AZURE_TENANT_ID": "loopback",
        "AZURE_CLIENT_ID": "tests",
        "AZURE_CLIENT_SECRET": "opens-nothing",
        "AZURE_AUTHORITY_HOST": server.url,
        "AZURE_TOKEN_CREDENTIALS": "EnvironmentCredential",
        "GPUPLAN_ENDPOINT_AZURE_ARM": server.url,
        "GPUPLAN_ENDPOINT_AZURE_RETAIL": server.url,
        "REQUESTS_CA_BUNDLE": str(server.session.verify),
        "NO_PROXY": "localhost,127.0.0.1",
        "HOME": os.environ.get("HOME", "/"),
    }


def self_signed(folder: Path) -> Path:
    """Write a certificate for `localhost`, with its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    now = datetime.datetime.now(tz=datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=7))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = folder / "localhost.pem"
    path.write_bytes(certificate.public_bytes(pem) + secret)
    return path
