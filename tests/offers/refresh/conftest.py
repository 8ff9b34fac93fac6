"""Invented keys of AWS, for all tests that ask its signed APIs on loopback."""

from __future__ import annotations

import pytest
from vendors.aws_sdk import KEYS


@pytest.fixture
def aws_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys in the environment, and no pauses between boto3's own attempts."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _: None)
