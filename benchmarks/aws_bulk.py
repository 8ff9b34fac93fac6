"""Time and memory to read an AWS offer file of real size: 300 MB over loopback.

    python benchmarks/aws_bulk.py [MEGABYTES]

Generates the file (Amazon's columns), serves it from another process, reads it with the source `aws-bulk` in a
fresh one, and prints one JSON object. Fails above 60 s or 300 MB.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

LIMIT_S, LIMIT_MB = 60.0, 300.0
REGION = "us-east-1"


def write_file(path: Path, megabytes: int) -> int:
    """Write an offer file of at least this size; returns how many lines are of interest."""
    from gpuplan.offers.catalog import load_catalog
    from vendors import aws

    offers = [
        o
        for o in load_catalog().offers
        if (o.provider, o.region, o.purchase) == ("aws", REGION, "on_demand") and o.usd_per_hour
    ]
    head, *wanted = _split(aws.offer_file(aws.offer_line(o) for o in offers))
    filler = b"".join(line for o in offers for line in _split(aws.offer_file(aws.distractors(o)))[1:])
    with path.open("wb") as file:
        file.write(head)
        for line in wanted:
            file.write(line)
            while file.tell() < megabytes * 10**6 * (wanted.index(line) + 1) / len(wanted):
                file.write(filler)
    return len(wanted)


def _split(document: bytes) -> list[bytes]:
    """Return preamble and header as one, then the lines."""
    lines = document.splitlines(keepends=True)
    return [b"".join(lines[:6]), *lines[6:]]


def serve(folder: Path) -> subprocess.Popen[str]:
    """Serve a folder on loopback from another process; the port is its first line."""
    program = (
        "import functools, http.server as h, sys\n"
        "class Quiet(h.SimpleHTTPRequestHandler):\n"
        "    def log_message(self, *a): pass\n"
        "s = h.ThreadingHTTPServer(('127.0.0.1', 0), functools.partial(Quiet, directory=sys.argv[1]))\n"
        "print(s.server_address[1], flush=True); s.serve_forever()"
    )
    return subprocess.Popen([sys.executable, "-c", program, str(folder)], stdout=subprocess.PIPE, text=True)


def read(url: str) -> None:
    """Read the file as `gpuplan catalog refresh` does; print what it took."""
    from gpuplan.offers.refresh.aws_public import AwsBulk
    from gpuplan.offers.refresh.http import HttpClient
    from gpuplan.offers.refresh.source import RefreshRequest

    request = RefreshRequest(regions=(REGION,), endpoints={"aws-bulk": url})
    source = AwsBulk()
    began, cpu = time.perf_counter(), time.process_time()
    rows = list(source.read(source.parts(request)[0], request, HttpClient()))
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        json.dumps(
            {
                "rows": len(rows),
                "seconds": round(time.perf_counter() - began, 2),
                "cpu_seconds": round(time.process_time() - cpu, 2),
                "peak_mb": round(peak_kib * 1024 / 1e6, 1),
            }
        )
    )


def main() -> int:
    """Generate, serve, read, judge."""
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / f"offers/v1.0/aws/AmazonEC2/current/{REGION}/index.csv"
        path.parent.mkdir(parents=True)
        wanted = write_file(path, megabytes)
        server = serve(Path(name))
        try:
            assert server.stdout is not None
            url = f"http://127.0.0.1:{server.stdout.readline().strip()}"
            done = subprocess.run(
                [sys.executable, __file__, "--read", url], capture_output=True, text=True, check=True
            )
        finally:
            server.terminate()
            server.wait()
        result = {"file_mb": round(path.stat().st_size / 1e6, 1), **json.loads(done.stdout)}
    print(json.dumps(result))
    return int(result["rows"] != wanted or result["seconds"] > LIMIT_S or result["peak_mb"] > LIMIT_MB)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--read"]:
        read(sys.argv[2])
    else:
        sys.exit(main())
