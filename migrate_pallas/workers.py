"""Worker processes: portions of work go out, results come back in order, and a death loses nothing.

`concurrent.futures` would do, but for one thing: when a process dies its pool is lost as a whole, and
nobody knows which portion killed it. Here each worker has a connection of its own, and the end of
that connection is the news of its death.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

# So many chunks for each worker may be under way or done before the first of them is: enough that
# one long file does not keep the others from working, and a bound on memory.
_AHEAD = 32
# So many chunks for each worker are ready to be handed out, which in the end is done item by item.
_IN_STORE = 8


@dataclass(frozen=True)
class Work(Generic[Item, Result]):
    """What workers do.

    `do` works on an item, raises no `Exception`, and returns None where there is nothing to tell. `size` says how much
    work it is.
    `after_death(pid, item, last)` puts right what process `pid`, which was killed, left of an item;
    what it returns is the item's result, or with None the item is done again. `last` says that it
    may not be: two processes died of it.
    """

    do: Callable[[Item], Result | None]
    after_death: Callable[[int, Item, bool], Result | None]
    size: Callable[[Item], int] = lambda item: 1


@dataclass
class _Chunk(Generic[Item, Result]):
    """Items that come out together, and what is known of them; `open` counts what is not."""

    items: Sequence[Item]
    results: list[Result | None]
    open: int


@dataclass
class _Portion(Generic[Item, Result]):
    """What a worker gets at once: items of a chunk, by their numbers. `again` after a death."""

    chunk: _Chunk[Item, Result]
    numbers: list[int]
    again: bool = False


@dataclass
class _Worker(Generic[Item, Result]):
    process: BaseProcess
    connection: Connection
    portion: _Portion[Item, Result] | None = None


def in_order(
    chunks: Iterator[Sequence[Item]], work: Work[Item, Result], jobs: int
) -> Generator[list[Result | None], None, None]:
    """Yield the results of each chunk, in the order of the chunks, from `jobs` processes.

    Closing the iterator, which an interrupt does too, ends the processes: each finishes the write
    that it is at, and no more.
    """
    team = _Team(work, jobs)
    try:
        yield from team.results(chunks)
    finally:
        team.dismiss()


@dataclass
class _Team(Generic[Item, Result]):
    work: Work[Item, Result]
    jobs: int
    workers: list[_Worker[Item, Result]] = field(default_factory=list)
    waiting: deque[_Portion[Item, Result]] = field(default_factory=deque)
    order: deque[_Chunk[Item, Result]] = field(default_factory=deque)

    def results(self, chunks: Iterator[Sequence[Item]]) -> Iterator[list[Result | None]]:
        more = True
        while True:
            self._hand_out()
            while self.order and not self.order[0].open:
                yield self.order.popleft().results
            enough = _IN_STORE * self.jobs
            if more and len(self.waiting) < enough and len(self.order) < _AHEAD * self.jobs:
                items = next(chunks, None)
                if items is None:
                    more = False
                    self._split()
                else:
                    self._add(items)
                self._listen(0)
            elif self.order:
                self._listen(None)
            else:
                return

    def _add(self, items: Sequence[Item]) -> None:
        chunk: _Chunk[Item, Result] = _Chunk(items, [None] * len(items), len(items))
        self.order.append(chunk)
        self.waiting.append(_Portion(chunk, list(range(len(items)))))

    def _split(self) -> None:
        """Hand the last items out one by one, the largest first, so that all workers end at about the same time."""
        if len(self.workers) == self.jobs:
            items = [
                _Portion(portion.chunk, [number], portion.again)
                for portion in self.waiting
                for number in portion.numbers
            ]
            size = self.work.size
            items.sort(key=lambda one: size(one.chunk.items[one.numbers[0]]), reverse=True)
            self.waiting = deque(items)

    def _hand_out(self) -> None:
        """Give idle workers what waits, and take on more workers while there are fewer than jobs."""
        for worker in [worker for worker in self.workers if worker.portion is None]:
            if worker.connection.poll():  # An idle one has nothing to say but that it is dead.
                self._bury(worker)
            elif self.waiting:
                self._give(worker)
        while self.waiting and len(self.workers) < self.jobs:
            try:
                self.workers.append(self._start())
            except OSError:  # No more processes, or no memory for one.
                if not self.workers:
                    self._do_here(self.waiting.popleft())
                return
            self._give(self.workers[-1])

    def _give(self, worker: _Worker[Item, Result]) -> None:
        worker.portion = portion = self.waiting.popleft()
        # A worker that has died is found out when it is listened to.
        with contextlib.suppress(OSError):
            worker.connection.send([portion.chunk.items[number] for number in portion.numbers])

    def _do_here(self, portion: _Portion[Item, Result]) -> None:
        for number in portion.numbers:
            portion.chunk.results[number] = self.work.do(portion.chunk.items[number])
            portion.chunk.open -= 1

    def _start(self) -> _Worker[Item, Result]:
        fork = "fork" in multiprocessing.get_all_start_methods()
        context = multiprocessing.get_context("fork" if fork else "spawn")
        ours, its = context.Pipe()
        # A fork has our ends of all connections; unless it closes them, they outlive us.
        not_its = [ours, *(worker.connection for worker in self.workers)] if fork else []
        process = context.Process(  # type: ignore[attr-defined]  # Of each context, for typeshed.
            target=_serve, args=(its, not_its, self.work.do)
        )
        with its, _without_interrupts():
            process.start()
        return _Worker(process, ours)

    def _listen(self, timeout: float | None) -> None:
        """Take in what workers have to say; wait for the first word up to `timeout` seconds."""
        busy = {worker.connection: worker for worker in self.workers if worker.portion}
        for connection in wait(list(busy), timeout) if busy else ():
            worker = busy[connection]  # type: ignore[index]  # Of sockets too, for typeshed.
            try:
                while worker.portion and worker.connection.poll():
                    self._take_in(worker.portion, worker)
            except (EOFError, OSError):
                self._bury(worker)

    def _take_in(self, portion: _Portion[Item, Result], worker: _Worker[Item, Result]) -> None:
        """Receive the result of one item, or None: the portion is done, no other has a result."""
        message = worker.connection.recv()
        if message is None:
            portion.chunk.open -= len(portion.numbers)
            worker.portion = None
        else:
            place, result = message
            portion.chunk.results[portion.numbers[place]] = result

    def _bury(self, worker: _Worker[Item, Result]) -> None:
        """Have each item that a dead worker told nothing of done again, by itself; but only once."""
        self.workers.remove(worker)
        worker.connection.close()
        worker.process.join()
        portion = worker.portion
        if portion is None or worker.process.pid is None:
            return
        chunk = portion.chunk
        for number in portion.numbers:
            if chunk.results[number] is None:
                told = self.work.after_death(worker.process.pid, chunk.items[number], portion.again)
                if told is None and not portion.again:
                    self.waiting.appendleft(_Portion(chunk, [number], again=True))
                    continue
                chunk.results[number] = told
            chunk.open -= 1

    def dismiss(self) -> None:
        """End the workers: a closed connection ends them after an item, an interrupt at once."""
        for worker in self.workers:
            worker.connection.close()
            if worker.portion and os.name == "posix" and worker.process.is_alive():
                os.kill(worker.process.pid or 0, signal.SIGINT)
        for worker in self.workers:
            worker.process.join()


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Hold interrupts back, also in a process that is started meanwhile."""
    if os.name != "posix":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(
    connection: Connection,
    not_ours: Sequence[Connection],
    do: Callable[[Item], Result | None],
) -> None:
    """What a worker does all its life. It ends with the other end of its connection."""
    for other in not_ours:
        other.close()
    # Ends at once and without a word, but for a write, which lets interrupts wait.
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(130))
    if os.name == "posix":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    # Whatever fails here, such as memory, is a death for the parent, which knows what to do.
    with contextlib.suppress(Exception):
        while True:
            for place, item in enumerate(connection.recv()):
                result = do(item)
                if result is not None:
                    connection.send((place, result))
                if connection.poll():  # Nothing comes before a portion is done, but the end.
                    return
            connection.send(None)
