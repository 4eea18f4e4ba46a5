"""What `torch.save` wrote, without running anything that the file asks for."""

from __future__ import annotations

import pickletools
import zipfile
from typing import Any

from dummyaudit.errors import InputError

PICKLE_LIMIT = 2**20
"""Bytes of the pickle inside, which describes tensors and does not hold them."""

_ALLOWED = {"torch._utils _rebuild_tensor_v2", "collections OrderedDict", "torch.storage UntypedStorage"}
_STORAGES = ("Byte", "Char", "Short", "Int", "Long", "Bool", "Half", "Float", "Double", "BFloat16")
_ALLOWED |= {f"torch {kind}Storage" for kind in _STORAGES}

_IMPORTS = {"GLOBAL", "STACK_GLOBAL", "INST", "EXT1", "EXT2", "EXT4"}


def load_dict(path: str) -> dict[str, Any]:
    """The dict of tensors and numbers in a file of `torch.save`; tensors are mapped, not read.

    Raises:
        InputError: it holds something else, or is compressed.
        Exception: it is damaged.
    """
    _check_pickle(path)
    try:
        import torch
    except ImportError as error:
        raise InputError(f"cannot read {path!r}: torch is not installed", "save it as .npz") from error

    content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    if not isinstance(content, dict):
        raise InputError(f"{path!r} holds {type(content).__name__}, not a dict of tensors")
    return {str(name): value for name, value in content.items()}


def _check_pickle(path: str) -> None:
    """Refuses a pickle that wants more than tensors, before anything else sees it."""
    if not zipfile.is_zipfile(path):
        raise InputError(f"{path!r} is not in the format of torch.save since 1.6", "save a dict of tensors again")
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise InputError(f"{path!r} is compressed, which torch.save does not do")
        pickles = [member for member in members if member.filename.endswith(".pkl")]
        if len(pickles) != 1:
            raise InputError(f"{path!r} holds {len(pickles)} pickles, not one", "save a dict of tensors")
        if pickles[0].file_size > PICKLE_LIMIT:
            raise InputError(f"{path!r} holds a pickle of {pickles[0].file_size} bytes", "save tensors, not lists")
        pickle = archive.read(pickles[0])
    for opcode, argument, _ in pickletools.genops(pickle):
        if opcode.name in _IMPORTS and argument not in _ALLOWED:
            wants = str(argument or opcode.name).replace(" ", ".")
            raise InputError(f"{path!r} holds a pickle that wants {wants}", "save a dict of tensors alone")
