"""A launcher on a new AWS for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from launch.aws.bench import Cloud
from launch.aws_world import AwsServer
from launch.worlds import AwsWorld


@pytest.fixture(scope="module")
def world(aws_process: AwsServer) -> AwsWorld:
    return AwsWorld(aws_process)


@pytest.fixture
def cloud(aws: AwsServer, world: AwsWorld, tmp_path: Path) -> Iterator[Cloud]:
    world.begin("both")
    yield Cloud(aws, tmp_path, world)
    world.clear()
