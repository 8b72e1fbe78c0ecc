"""Fashion-MNIST with what ampkit's loader does to an image: crop, flip,
cutout, normalisation."""

import gzip

import numpy as np
import torch
from torch.utils.data import Dataset

MEAN, DEVIATION = 0.286, 0.353


def read(path, offset):
    with gzip.open(path) as file:
        return np.frombuffer(file.read(), np.uint8, offset=offset)


def cut_out(image, side):
    """Gives a square around a random place the mean colour."""
    y, x = torch.randint(0, 28, (2,)).tolist()
    top, left = max(0, y - side // 2), max(0, x - side // 2)
    image[top : y - side // 2 + side, left : x - side // 2 + side] = 0
    return image


class FashionMnist(Dataset):
    def __init__(self, folder, split, crop_padding=0, flip=False, cutout=0):
        self.images = read(f"{folder}/{split}-images-idx3-ubyte.gz", 16)
        self.images = self.images.reshape(-1, 28, 28)
        self.labels = read(f"{folder}/{split}-labels-idx1-ubyte.gz", 8)
        self.crop_padding, self.flip, self.cutout = crop_padding, flip, cutout

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        image = torch.from_numpy(self.images[i].copy()).float().div_(255)
        if pad := self.crop_padding:
            image = torch.nn.functional.pad(image, (pad, pad, pad, pad))
            top, left = torch.randint(0, 2 * pad + 1, (2,)).tolist()
            image = image[top : top + 28, left : left + 28]
        if self.flip and torch.rand(()) < 0.5:
            image = image.flip(-1)
        image = image.sub_(MEAN).div_(DEVIATION)
        if self.cutout:
            image = cut_out(image, self.cutout)
        return image[None], int(self.labels[i])
