"""The tools of the documentation are scripts beside it, not part of the package."""

from __future__ import annotations

import sys
from pathlib import Path

TOOLS = Path(__file__).parents[2] / "docs" / "_tools"
sys.path.insert(0, str(TOOLS))
