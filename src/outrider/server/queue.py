"""Who comes next: one queue per client, served in turn, so that no client's hundred requests delay another's one."""

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """First come first served for each client; clients take turns. Not thread-safe."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[Hashable, deque[T]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        """Everything that waits, client by client."""
        for items in self._waiting.values():
            yield from items

    def push(self, client: Hashable, item: T) -> None:
        """Last of its client; a client that was not waiting has its turn after all others."""
        self._waiting.setdefault(client, deque()).append(item)
        self._count += 1

    def pop(self) -> T:
        """The next item; its client goes to the end of the line. IndexError if nothing waits."""
        if not self._waiting:
            raise IndexError("nothing waits")
        client, items = self._waiting.popitem(last=False)
        item = items.popleft()
        self._count -= 1
        if items:
            self._waiting[client] = items
        return item

    def remove(self, item: T) -> bool:
        """Take an item out of the line; False if it is not in it."""
        for client, items in self._waiting.items():
            if item in items:
                items.remove(item)
                self._count -= 1
                if not items:
                    del self._waiting[client]
                return True
        return False
