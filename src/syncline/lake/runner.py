"""Runs tasks on Spark's executors. What the tasks do, and what becomes of their answers, is none of its business."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from syncline.core.errors import SynclineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")


class OnSpark:
    """A task is a partition; tasks and answers are small, the data moves through files."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self.parallelism: int = self._context.defaultParallelism

    def run(self, function: Callable[[T], R], tasks: Sequence[T], title: str) -> list[R]:
        if not tasks:
            return []
        self._context.setJobDescription(title)
        answers = self._context.parallelize(tasks, len(tasks)).map(_guarded(function)).collect()
        return [_good(answer) for answer in answers]


def _guarded(function: Callable[[T], R]) -> Callable[[T], R | SynclineError]:
    """Our own errors come back as answers: Spark would run the task again, and then tell them only as text."""

    def run(task: T) -> R | SynclineError:
        try:
            return function(task)
        except SynclineError as error:
            return error

    return run


def _good(answer: R | SynclineError) -> R:
    if isinstance(answer, SynclineError):
        raise answer
    return answer
