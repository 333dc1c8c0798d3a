"""Every entry point of three public packages is accounted for: changed, right already, or left with a finding.

They are found here a second time, by `ast` and in another way: a name means what any import of its file, or the only
assignment to it, says that it does.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from public_packages import PACKAGES, unpack_one

ROOT = Path(__file__).parents[1]
TARGETS = ("pallas_call", "kernel", "core_map", "mpmd_map")
MIGRATED, PORTABLE = "migrated", "already portable"
PERSON, GPU = "needs a person", "for GPU, left alone"
STATUSES = {
    "tpu-inference": {},
    "tokamax": {},
    "ejkernel": {},
}

Place = tuple[str, int, int, str]
