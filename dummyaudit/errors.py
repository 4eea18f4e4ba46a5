"""The errors that a caller can mend."""

from __future__ import annotations


class DummyAuditError(Exception):
    """Base of all errors that a caller can mend.

    Attributes:
        message: what is wrong, in one line.
        hint: what to try instead, or an empty string.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        self.message = message
        self.hint = hint
        super().__init__(f"{message}; {hint}" if hint else message)

    def __reduce__(self) -> tuple[type[DummyAuditError], tuple[str, str]]:
        """Both parts survive the way to another process."""
        return type(self), (self.message, self.hint)


class InputError(DummyAuditError):
    """A setting, an axis or a file that cannot be used."""


class RuleError(DummyAuditError):
    """A rule that does not exist, cannot be loaded, or returns what is no split."""


class DeviceError(DummyAuditError):
    """A device that is not there, or a batch that does not fit it."""


class DisagreementError(DummyAuditError):
    """Built tensors that do not agree with the arithmetic: no verdict can be trusted."""
