"""CPUs as accelerators, rented ones and this machine's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from gpuplan.offers import local
from gpuplan.offers.catalog import find_device, load_catalog
from gpuplan.offers.cpu import build_cpu_accelerator, compute_fp32_tflop_per_s, find_offer_host
from gpuplan.offers.local import LocalCpu, build_local_offer, find_host, parse_cpuinfo, probe_local_offer
from gpuplan.offers.rows import Offer
from hypothesis import given
from hypothesis import strategies as st

CATALOG = load_catalog()

XEON = """\
processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 85
model name\t: Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz
stepping\t: 7
physical id\t: 0
core id\t\t: 0
flags\t\t: fpu avx512f hypervisor
"""
GRAVITON = "processor\t: 0\nBogoMIPS\t: 2100.00\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n"


def offer_of(instance_type: str) -> Offer:
    """Return the first offer of an instance type."""
    return next(offer for offer in CATALOG.offers if offer.instance_type == instance_type)


@pytest.mark.parametrize(
    ("instance_type", "tflop_per_s", "gb_per_s"),
    [
        ("m6i.2xlarge", 4 * 3.4 * 64 / 1e3, 205 * 4 / 32),  # 8 hyperthreads = 4 Ice Lake cores
        ("m7a.2xlarge", 8 * 3.5 * 32 / 1e3, 461 * 8 / 96),  # 8 Genoa cores: AWS turns hyperthreading off
        ("c3d-standard-8", 4 * 3.5 * 32 / 1e3, 461 * 4 / 96),  # the same chip at GCP: hyperthreads
        ("m7g.2xlarge", 8 * 2.6 * 32 / 1e3, 307 * 8 / 64),  # Graviton has no hyperthreads
        ("colab-free-cpu", 1 * 2.2 * 32 / 1e3, 20.0),  # about 70 GFLOP/s, as users report
    ],
)
def test_peaks_of_rented_cpus(instance_type: str, tflop_per_s: float, gb_per_s: float) -> None:
    """Closed form: physical cores × all-core clock × FLOP per cycle; bandwidth in proportion to the cores."""
    device = find_device(CATALOG, offer_of(instance_type))

    assert device is not None
    assert device.kind == "cpu"
    assert device.fp32_tflop_per_s == pytest.approx(tflop_per_s)
    assert device.memory_gb_per_s == pytest.approx(gb_per_s)
    assert device.memory_gib == offer_of(instance_type).memory_gib


def test_amx_counts_for_bfloat16_only() -> None:
    """Sapphire Rapids: 1,024 bf16 FLOP a cycle and core through AMX, 64 fp32 without."""
    device = find_device(CATALOG, offer_of("m7i.2xlarge"))

    assert device is not None
    assert device.bf16_tensor_tflop_per_s == pytest.approx(4 * 3.0 * 1024 / 1e3)
    assert device.fp32_tflop_per_s == pytest.approx(4 * 3.0 * 64 / 1e3)


def test_an_ambiguous_series_is_of_low_confidence() -> None:
    """GCP n1 runs on Broadwell or Skylake: the slower one is taken, and the row says so."""
    host = find_offer_host(offer_of("n1-standard-8"), CATALOG.hosts, CATALOG.host_series)

    assert host is not None
    assert (host.family, host.confidence) == ("Intel Broadwell E5 v4", "low")
    assert "Broadwell or Skylake" in host.note


def test_an_unknown_series_has_no_device() -> None:
    """GCP e2 runs on whatever is free: unknown, not a guess."""
    assert find_device(CATALOG, offer_of("e2-standard-8")) is None


@given(vcpus=st.integers(1, 512), factor=st.integers(2, 8))
def test_more_vcpus_are_proportionally_faster(vcpus: int, factor: int) -> None:
    """A law: peak and bandwidth grow in proportion to vCPUs."""
    host = CATALOG.hosts["AMD Milan"]
    small, large = build_cpu_accelerator(host, vcpus, None), build_cpu_accelerator(host, vcpus * factor, None)

    assert large.fp32_tflop_per_s == pytest.approx(factor * (small.fp32_tflop_per_s or 0))
    assert large.memory_gb_per_s == pytest.approx(factor * (small.memory_gb_per_s or 0))


def test_the_formula() -> None:
    """28 cores at 2.5 GHz with two 512-bit FMA units (64 FLOP): 4.48 TFLOP/s."""
    assert compute_fp32_tflop_per_s(cores=28, clock_ghz=2.5, flop_per_cycle_per_core=64) == pytest.approx(4.48)


@pytest.mark.parametrize(
    ("cpu_id", "family"),
    [
        ("GenuineIntel-6-55-4", "Intel Skylake-SP"),
        ("GenuineIntel-6-55-7", "Intel Cascade Lake"),
        ("GenuineIntel-6-6A-6", "Intel Ice Lake-SP"),
        ("GenuineIntel-6-8F-8", "Intel Sapphire Rapids"),
        ("AuthenticAMD-23-31-0", "AMD Rome"),
        ("AuthenticAMD-25-1-1", "AMD Milan"),
        ("AuthenticAMD-25-11-1", "AMD Genoa"),
        ("ARM-0x41-0xd40", "AWS Graviton3 (Neoverse V1)"),
        ("GenuineIntel-6-9E-9", None),
        ("", None),
    ],
)
def test_processors_are_known_by_their_id(cpu_id: str, family: str | None) -> None:
    """Linux tools/perf/pmu-events/arch/x86/mapfile.csv for Intel; a desktop chip is in no row."""
    host = find_host(cpu_id, CATALOG.hosts)

    assert (host.family if host else None) == family


def test_cpuinfo_of_a_cloud_machine() -> None:
    """Two logical processors of one core: hyperthreads, in a virtual machine."""
    cpu = parse_cpuinfo(f"{XEON}\n{XEON}")

    assert cpu.cpu_id == "GenuineIntel-6-55-7"
    assert (cpu.threads_per_core, cpu.sockets, cpu.virtual) == (2.0, 1, True)
    assert parse_cpuinfo(GRAVITON).cpu_id == "ARM-0x41-0xd40"


def test_a_known_processor_gets_its_own_figures() -> None:
    """Two hyperthreads of a Cascade Lake: one core at 3.1 GHz with 64 FLOP a cycle."""
    offer, device = build_local_offer(
        CATALOG, cpu=parse_cpuinfo(f"{XEON}\n{XEON}"), logical_cores=2, memory_gib=8.0
    )

    assert device.architecture == "Intel Cascade Lake"
    assert device.fp32_tflop_per_s == pytest.approx(3.1 * 64 / 1e3)
    assert (offer.usd_per_hour, offer.vcpus, offer.memory_gib) == (0, 2, 8.0)


def test_an_unknown_processor_is_taken_for_a_stated_desktop() -> None:
    """An unknown chip: generic AVX2, all of its memory bandwidth, low confidence, a note."""
    cpu = LocalCpu(model_name="Core i9 of tomorrow", cpu_id="GenuineIntel-6-FF-1", threads_per_core=2)

    offer, device = build_local_offer(CATALOG, cpu=cpu, logical_cores=16, memory_gib=32.0)

    assert (device.architecture, device.confidence) == ("Generic AVX2", "low")
    assert device.fp32_tflop_per_s == pytest.approx(8 * 3.0 * 32 / 1e3)
    assert device.memory_gb_per_s == pytest.approx(51.2)
    assert "Core i9 of tomorrow" in offer.note


def test_gpus_of_this_machine() -> None:
    """Two A100 under the driver's name become two `A100-40GB`."""
    offer, device = build_local_offer(
        CATALOG,
        cpu=LocalCpu(model_name="x", cpu_id=""),
        logical_cores=16,
        memory_gib=64.0,
        gpu_names=["NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB", "Quadro P400"],
    )

    assert (offer.accelerator, offer.devices, device.name) == ("A100-40GB", 2, "A100-40GB")
    assert "GPU `Quadro P400` is ignored" in offer.note


@pytest.mark.parametrize("name", ["Quadro P400", "NVIDIA H200 MIG"])
def test_a_gpu_that_the_catalog_does_not_know_is_named(name: str) -> None:
    """An unknown card, or a slice of a known one, is not replaced by a neighbour: the CPU is offered."""
    offer, device = build_local_offer(
        CATALOG, cpu=LocalCpu(model_name="x", cpu_id=""), logical_cores=4, memory_gib=16.0, gpu_names=[name]
    )

    assert (offer.accelerator, device.kind) == ("CPU", "cpu")
    assert f"GPU `{name}` is ignored" in offer.note


def test_nvidia_smi_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's program is run (here a real one that prints two cards)."""
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!{sys.executable}\nprint('Tesla T4, [N/A]')\nprint('Tesla T4, [N/A]')\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    offer, device = probe_local_offer()

    assert (offer.accelerator, offer.devices, device.name) == ("T4", 2, "T4")


def test_a_failing_nvidia_smi_is_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that fails (no driver loaded) leaves the CPU."""
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nexit 9\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    assert probe_local_offer()[1].kind == "cpu"


def test_this_machine_is_an_offer_at_no_price() -> None:
    """Whatever runs the tests: an offer of provider `local` at $0 that says who pays."""
    offer, device = probe_local_offer(CATALOG)

    assert (offer.provider, offer.usd_per_hour, offer.status) == ("local", 0, "active")
    assert device.name == offer.accelerator
    assert (offer.vcpus or 0) >= 1


def test_nothing_is_probed_at_import() -> None:
    """Importing the room starts no process and reads no price."""
    code = "import gpuplan.offers.local, gpuplan.offers.catalog as l; print(l._packaged_catalog.cache_info()[3])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "0"
    assert local.PROVIDER == "local"


def test_a_board_with_two_sockets() -> None:
    """A processor on each socket, and none that says where it is."""
    second = XEON.replace("processor\t: 0", "processor\t: 1").replace("physical id\t: 0", "physical id\t: 1")

    assert [parse_cpuinfo(text).sockets for text in (XEON, f"{XEON}\n{second}", GRAVITON)] == [1, 2, 1]
