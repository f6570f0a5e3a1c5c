# SPDX-License-Identifier: Apache-2.0
"""What image processors need of torchvision, made of Pillow.

Some families have no image processor that uses Pillow. install() puts the few functions that theirs call in torchvision's place
(also where it is installed): a resize is Pillow's own, channel by channel as ever, so that pixels are those that our program
computes; cutting, tiling and sizes stay the processor's.
"""

import enum
import importlib
import importlib.abc
import importlib.machinery
import sys
import types

import numpy as np
import torch
from PIL import Image


class InterpolationMode(enum.Enum):
    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


FILTERS = {InterpolationMode.BILINEAR: Image.BILINEAR, InterpolationMode.BICUBIC: Image.BICUBIC,
           InterpolationMode.LANCZOS: Image.LANCZOS}


def resize(image, size, interpolation=InterpolationMode.BILINEAR, antialias=True, **more):
    assert image.dtype == torch.uint8 and antialias, (image.dtype, antialias)
    flat = image.reshape(-1, *image.shape[-3:])
    done = [torch.from_numpy(np.asarray(Image.fromarray(x.permute(1, 2, 0).contiguous().numpy(), "RGB").resize(
        (size[1], size[0]), FILTERS[interpolation])).copy()).permute(2, 0, 1) for x in flat]
    return torch.stack(done).reshape(*image.shape[:-2], *size)


def pad(image, padding, fill=0, padding_mode="constant"):
    assert padding_mode == "constant"
    if isinstance(fill, (list, tuple)):
        assert all(f == 0 for f in fill)
        fill = 0
    left, top, right, bottom = padding
    out = image.new_full((*image.shape[:-2], image.shape[-2] + top + bottom, image.shape[-1] + left + right), fill)
    out[..., top : top + image.shape[-2], left : left + image.shape[-1]] = image
    return out


def normalize(image, mean, std, inplace=False):
    mean = torch.as_tensor(mean, dtype=image.dtype).view(-1, 1, 1)
    std = torch.as_tensor(std, dtype=image.dtype).view(-1, 1, 1)
    return image.sub(mean).div_(std)


def crop(image, top, left, height, width):
    return image[..., top : top + height, left : left + width]


def pil_to_tensor(image):
    return torch.from_numpy(np.asarray(image.convert("RGB")).copy()).permute(2, 0, 1).contiguous()


HAS = {"InterpolationMode": InterpolationMode, "resize": resize, "pad": pad, "normalize": normalize, "crop": crop,
       "pil_to_tensor": pil_to_tensor}


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] != "torchvision":
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return types.ModuleType(spec.name)

    def exec_module(self, module):
        module.__version__, module.__file__ = "0.26.0", __file__
        module.__getattr__ = lambda name: HAS[name] if name in HAS else self.other(module, name)

    def other(self, module, name):
        """Names that are imported and not used."""
        if name.startswith("__"):
            raise AttributeError(name)
        if name[0].isupper():
            return type(name, (object,), {"RGB": None})
        return importlib.import_module(f"{module.__name__}.{name}")


def install():
    """Before transformers is imported."""
    if not any(isinstance(f, Finder) for f in sys.meta_path):
        assert "transformers" not in sys.modules and "torchvision" not in sys.modules
        sys.meta_path.insert(0, Finder())
