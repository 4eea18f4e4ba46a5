"""Tensors that an engine saved: whole numbers by name, from .npz, .json, .safetensors or .pt, in bounded memory.

Files are not trusted: what a file says of its own sizes is held against what it really holds before anything is made
of that size, and nothing in it is run.
"""

from __future__ import annotations

import io
import json
import math
import os
import stat
import warnings
import zipfile
from collections.abc import Callable, Collection
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from dummyaudit.errors import InputError

LIMIT = 2**28
"""Bytes that one tensor may take. What is worked out of it takes several times as many, but stays below 2 GiB."""

JSON_LIMIT = 2**25
"""Bytes of a JSON file: read, it takes up to some thirty times as many."""

HEADER_LIMIT = 2**20
"""Bytes of a header that describes tensors."""

Tensor = npt.NDArray[np.int64]
Found = tuple[dict[str, npt.NDArray[Any]], list[str]]
"""The tensors that were wanted and are there, and the names of all."""

_SAFETENSORS_DTYPES = {f"{kind.upper()}{8 * size}": f"<{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)}
"""NumPy's names of the whole numbers that safetensors holds: I8 to I64, U8 to U64."""


def read_tensors(path: str, wanted: Collection[str]) -> Found:
    """Those of the wanted tensors that a file holds, and the names of all that it holds.

    A number is a tensor without dimensions. What is not wanted is not read, where the kind of file allows it.

    Args:
        path: the file; what its name ends in says what kind it is.
        wanted: names.

    Raises:
        InputError: the file cannot be read, is of no known kind or damaged, or a wanted tensor is larger than LIMIT
            or holds something else than whole numbers.
    """
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in _READERS:
        raise InputError(f"{path!r} is of no kind that can be read", f"its name has to end in {', '.join(_READERS)}")
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise InputError(f"cannot read {path!r}: not a file")
        return _READERS[suffix](path, wanted)
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"cannot read {path!r}: {error.strerror or error}") from error
    except Exception as error:
        # Readers of damaged files raise whatever they stumble on.
        text = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(f"cannot read {path!r} as {suffix}: {text}", "is it damaged?") from error


def _read_npz(path: str, wanted: Collection[str]) -> Found:
    found = {}
    with zipfile.ZipFile(path) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        for name in members.keys() & set(wanted):
            with archive.open(members[name]) as stream:
                found[name] = _read_npy(name, stream.read)
    return found, list(members)


def _read_npy(name: str, read: Callable[[int], bytes]) -> npt.NDArray[Any]:
    """A NumPy array out of a stream, of which no more is read than the array takes."""
    prefix = read(10)
    version = np.lib.format.read_magic(io.BytesIO(prefix))
    if version not in ((1, 0), (2, 0)):
        raise InputError(f"tensor {name!r} is in version {version[0]} of NumPy's format", "save it with np.savez")
    if version == (2, 0):
        prefix += read(2)
    size = int.from_bytes(prefix[8:], "little")
    if size > HEADER_LIMIT:
        raise InputError(f"tensor {name!r} has a header of {size} bytes", "is it damaged?")
    header = io.BytesIO(prefix[8:] + read(size))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = reader(header)
    _check_kind(name, dtype.kind, str(dtype))
    data = read(_size_of(name, shape, dtype.itemsize))
    if len(data) < math.prod(shape) * dtype.itemsize:
        raise InputError(f"tensor {name!r} says it has shape {list(shape)}, but the file ends before")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")


def _read_json(path: str, wanted: Collection[str]) -> Found:
    size = os.path.getsize(path)
    if size > JSON_LIMIT:
        raise InputError(f"{path!r} has {size} bytes, too many for JSON", "save it as .npz or .safetensors")
    with open(path, encoding="utf-8-sig") as stream:
        content = json.load(stream, parse_constant=_refuse_constant)
    if not isinstance(content, dict):
        raise InputError(f"{path!r} holds no JSON object", 'write {"seq_lens": [...], "block_table": [[...], ...]}')
    return {name: _to_array(name, content[name]) for name in content.keys() & set(wanted)}, list(content)


def _refuse_constant(text: str) -> NoReturn:
    raise InputError(f"{text} is no number of tokens or pages")


def _read_safetensors(path: str, wanted: Collection[str]) -> Found:
    with open(path, "rb") as stream:
        data_size = os.fstat(stream.fileno()).st_size - 8
        size = int.from_bytes(stream.read(8), "little")
        if size > min(HEADER_LIMIT, data_size):
            raise InputError(f"{path!r} has a header of {size} bytes", "is it damaged?")
        header = json.loads(stream.read(size))
        data_size -= size
        if not isinstance(header, dict):
            raise InputError(f"{path!r} has a header that is no JSON object", "is it damaged?")
        header.pop("__metadata__", None)
        found = {}
        for name in header.keys() & set(wanted):
            entry = header[name]
            shape, (start, end) = tuple(entry["shape"]), entry["data_offsets"]
            _check_kind(name, "i" if entry["dtype"] in _SAFETENSORS_DTYPES else "f", entry["dtype"])
            dtype = np.dtype(_SAFETENSORS_DTYPES[entry["dtype"]])
            expected = _size_of(name, shape, dtype.itemsize)
            if not 0 <= start <= end <= data_size or end - start != expected:
                raise InputError(f"tensor {name!r} of shape {list(shape)} does not lie in the file as it should")
            stream.seek(8 + size + start)
            found[name] = np.frombuffer(stream.read(expected), dtype).reshape(shape)
    return found, list(header)


def _read_pt(path: str, wanted: Collection[str]) -> Found:
    from dummyaudit.tensors_torch import load_dict

    content = load_dict(path)
    return {name: _to_array(name, content[name]) for name in content.keys() & set(wanted)}, list(content)


_READERS: dict[str, Callable[[str, Collection[str]], Found]] = {
    ".npz": _read_npz,
    ".json": _read_json,
    ".safetensors": _read_safetensors,
    ".pt": _read_pt,
    ".pth": _read_pt,
}


def _to_array(name: str, value: Any) -> npt.NDArray[Any]:
    """A number, a list or a torch tensor as an array."""
    if hasattr(value, "element_size"):
        _size_of(name, tuple(value.shape), value.element_size())
        kind = (
            "f"
            if value.is_floating_point() or value.is_complex()
            else "b"
            if str(value.dtype).endswith("bool")
            else "i"
        )
        _check_kind(name, kind, str(value.dtype).removeprefix("torch."))
        array: npt.NDArray[Any] = value.numpy()
        return array
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InputError(f"tensor {name!r} has rows of different lengths") from error
    if array.size:
        _check_kind(name, array.dtype.kind, f"of type {array.dtype}")
    return array


def _check_kind(name: str, kind: str, dtype: str) -> None:
    if kind not in "iu":
        raise InputError(f"tensor {name!r} is {dtype}, not whole numbers", "save it as int32 or int64")


def _size_of(name: str, shape: tuple[Any, ...], itemsize: int) -> int:
    """Bytes of a tensor of that shape; refuses what is no shape or too large."""
    if not all(type(length) is int and length >= 0 for length in shape) or len(shape) > 32:
        raise InputError(f"tensor {name!r} has no shape: {str(list(shape))[:100]}", "is it damaged?")
    size: int = math.prod(shape) * itemsize
    if size > LIMIT:
        raise InputError(
            f"tensor {name!r} of shape {list(shape)} takes {size / 2**30:.3g} GiB",
            f"save a part of it: at most {LIMIT / 2**30:g} GiB are read",
        )
    return size
