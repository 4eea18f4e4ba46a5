"""Asks a builder for every shape of a grid, and finds the smallest shape of each way to fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dummyaudit.block_table import BlockTable
from dummyaudit.errors import RuleError
from dummyaudit.probing.result import OVERFLOW, Failure
from dummyaudit.probing.rule import Answers, Shape
from dummyaudit.probing.smallest import find_smallest

RAISES = "raises"


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """What fails, over a grid and below it.

    Attributes:
        answers: what the builder makes of shapes.
        shapes: the grid, by num_tokens and then num_reqs.
        tables: the block tables.
        checks: names of the checks that count.
    """

    answers: Answers
    shapes: Sequence[Shape]
    tables: Sequence[BlockTable]
    checks: tuple[str, ...]

    def ask(self, progress: Callable[[int, int], None] | None) -> None:
        """Asks for every shape of the grid.

        Raises:
            RuleError: the builder raised or returned what is no batch; it names the smallest shape found for that.
        """
        for done, shape in enumerate(self.shapes, start=1):
            if isinstance(self.answers.get(shape), RuleError):
                raise self._error(shape)
            if progress:
                progress(done, len(self.shapes))

    def _error(self, shape: Shape) -> RuleError:
        def fails(smaller: Shape) -> set[str]:
            return {RAISES} if isinstance(self.answers.get(smaller), RuleError) else set()

        (num_reqs, num_tokens), _ = find_smallest(fails, {RAISES: shape}, shape[0])[RAISES]
        error = self.answers.get((num_reqs, num_tokens))
        text, hint = (error.message, error.hint) if isinstance(error, RuleError) else ("", "")
        where = f"builder {self.answers.builder.name!r} at num_reqs {num_reqs}, num_tokens {num_tokens}"
        return RuleError(f"{where}: {text}", hint)

    def failures(self) -> tuple[Failure, ...]:
        """Each way in which a shape of the grid fails, with the smallest shape that does; overflow first."""
        first: dict[str, Shape] = {}
        shapes: dict[str, int] = {}
        for shape in self.shapes:
            for name in self.fails(shape):
                first.setdefault(name, shape)
                shapes[name] = shapes.get(name, 0) + 1
        most = max(num_reqs for num_reqs, _ in self.shapes)
        smallest = find_smallest(self.fails, first, most)
        return tuple(
            Failure(name, shapes[name], *shape, exact, self._text(name, shape))
            for name in (OVERFLOW, *self.checks)
            if name in smallest
            for shape, exact in [smallest[name]]
        )

    def fails(self, shape: Shape) -> set[str]:
        """Names of what fails of a shape; what cannot be asked does not fail but is no answer."""
        answer = self.answers.get(shape)
        if isinstance(answer, RuleError):
            return set()
        failed = {str(name) for name in answer.faults if name in self.checks}
        if self._overflow(shape):
            failed.add(OVERFLOW)
        return failed

    def _overflow(self, shape: Shape) -> tuple[BlockTable, int] | None:
        """The first table for which the shape is feasible and overflows, and the last of its longest requests."""
        num_reqs, num_tokens = shape
        seq_lens = self.answers[shape].seq_lens
        for table in self.tables:
            pages = table.pages(seq_lens)
            if num_tokens <= num_reqs * table.max_model_len and pages.max() > table.row_slots:
                return table, len(pages) - 1 - int(pages[::-1].argmax())
        return None

    def _text(self, name: str, shape: Shape) -> str:
        answer = self.answers[shape]
        if name != OVERFLOW:
            return next(text for check, text in answer.faults.items() if check == name)
        found = self._overflow(shape)
        assert found is not None, "only shapes that overflow are named so"
        table, request = found
        return (
            f"request {request} has seq_len {answer.seq_lens[request]}: {table.pages(int(answer.seq_lens[request]))} "
            f"pages of {table.row_slots} slots at max_model_len {table.max_model_len}, block_size {table.block_size}"
        )
