# SPDX-License-Identifier: Apache-2.0
"""Pictures and sounds for hearth.local, as numbers: decoding files is the caller's, but for WAV, which Python reads itself.

    from PIL import Image
    model.chat([{"role": "user", "content": [{"type": "image", "image": Image.open("cat.jpg")},
                                             {"type": "text", "text": "What is this?"}]}])
"""
from __future__ import annotations

import array
import os
import sys
import wave
from typing import IO, Any, Iterable, Union


class Picture:
    """Rows from the top, three bytes (red, green, blue) per pixel."""

    def __init__(self, width: int, height: int, rgb: Union[bytes, bytearray, memoryview]):
        data = bytes(rgb)
        if width <= 0 or height <= 0 or len(data) != width * height * 3:
            raise ValueError(f"a picture of {width} x {height} has {max(0, width * height * 3)} bytes, not {len(data)}")
        self.width = width
        self.height = height
        self.rgb = data

    @classmethod
    def of(cls, value: Any) -> "Picture":
        """Of a Picture, a picture of Pillow, or an array of height x width x 3 bytes (numpy's, or anything with a buffer)."""
        if isinstance(value, cls):
            return value
        if callable(getattr(value, "convert", None)) and callable(getattr(value, "tobytes", None)):
            turned = value.convert("RGB")
            return cls(turned.size[0], turned.size[1], turned.tobytes())
        try:
            view = memoryview(value)
        except TypeError:
            raise TypeError(f"a picture is a Picture, one of Pillow, or an array of height x width x 3 bytes, not {type(value).__name__}") from None
        if view.ndim != 3 or view.format != "B" or view.shape is None or view.shape[2] != 3:
            raise ValueError(f"an array of a picture is height x width x 3 bytes, not {view.shape} of {view.format!r}")
        return cls(view.shape[1], view.shape[0], view.tobytes())


class Sound:
    """One channel, values around -1 to 1, `rate` of them a second (4,000 to 192,000)."""

    def __init__(self, samples: Iterable[float], rate: int):
        self.samples: "array.array[float]" = array.array("f", samples)
        self.rate = rate

    @classmethod
    def wav(cls, file: Union[str, "os.PathLike[str]", IO[bytes]]) -> "Sound":
        """Of a WAV file of 8, 16, 24 or 32 bits; several channels become their mean."""
        opened = wave.open(os.fspath(file), "rb") if isinstance(file, (str, os.PathLike)) else wave.open(file, "rb")
        with opened as f:
            channels, width, rate, data = f.getnchannels(), f.getsampwidth(), f.getframerate(), f.readframes(f.getnframes())
        if width == 1:
            values: Any = [b - 128 for b in data]
        elif width == 3:
            values = [int.from_bytes(data[i:i + 3], "little", signed=True) for i in range(0, len(data) - 2, 3)]
        else:
            values = array.array("h" if width == 2 else "i", data)
            if sys.byteorder == "big":
                values.byteswap()
        scale = 1.0 / (channels << (8 * width - 1))
        return cls([sum(values[i:i + channels]) * scale for i in range(0, len(values) - channels + 1, channels)], rate)

    @classmethod
    def of(cls, value: Any) -> "Sound":
        if isinstance(value, cls):
            return value
        raise TypeError(f"a sound is a Sound, not {type(value).__name__}")
