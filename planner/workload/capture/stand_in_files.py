"""Stand-ins for files: folders of small equal files, and texts of a known length."""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Iterable, Mapping
from io import BytesIO
from itertools import cycle, islice
from pathlib import Path

LINKS_OF_A_FILE = 10_000  # file systems limit them, ext4 to 65,000 [-]
SIDE = 256  # of an image [pixels]
WORDS = 20_000  # different ones in texts [-]
RATE, SECONDS = 16_000, 1  # of audio


def write_folder(folder: Path, numbers: Mapping[str, int], *, ending: str) -> None:
    """Write folders of equal files, which take the room of one.

    Args:
        folder: Folder to create them in.
        numbers: Number of files by folder.
        ending: Ending of their names, which tells what they contain.
    """
    content, made = _build_content(ending), 0
    first = folder
    for name, number in numbers.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for count in range(number):
            path = folder / name / f"{count:07d}{ending}"
            if made % LINKS_OF_A_FILE == 0:
                first = path
                path.write_bytes(content)
            else:
                os.link(first, path)
            made += 1


def _build_content(ending: str) -> bytes:
    if ending == ".txt":
        return build_words(0, 100).encode()
    return _build_audio() if ending == ".wav" else build_image()


def build_image(height: int = SIDE, width: int = SIDE, *, channels: int = 3) -> bytes:
    """Return a black image as PNG, which readers know whatever its ending (w3.org/TR/png, section 5)."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)  # 8 bits a channel
    rows = zlib.compress((b"\0" + b"\0" * channels * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def _build_audio() -> bytes:
    import wave

    buffer = BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(b"\0\0" * RATE * SECONDS)
    return buffer.getvalue()


def build_words(number: int, words: int) -> str:
    """Return a text of some words, all different in consecutive texts up to a limit."""
    return " ".join(f"w{(number * words + word) % WORDS}" for word in range(words))


def build_text(alphabet: str, characters: int) -> str:
    r"""Return a text of a length that has all characters of an alphabet.

    Args:
        alphabet: Characters and ranges, like ` a-z`; `\n` is the end of a line.
        characters: Length [-].

    Example:
        >>> build_text("a-c .", 12)
        '. abc. abc. '
    """
    ranges = re.sub(r"(\w)-(\w)", lambda found: "".join(_iter_range(*found.groups())), alphabet)
    letters = sorted(
        set(ranges.replace(r"\n", "\n")), key=lambda one: (one != "\n", one.isalnum(), one == " ", one)
    )
    return "".join(islice(cycle(letters), characters))


def _iter_range(first: str, last: str) -> Iterable[str]:
    return map(chr, range(ord(first), ord(last) + 1))
