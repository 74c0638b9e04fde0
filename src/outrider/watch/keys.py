"""Single keys from a terminal, without Enter and without echo."""

import os
import select
import sys
from importlib.util import find_spec
from types import TracebackType

_LONGEST = 8  # characters of a key's name
_NAMES = {
    " ": "space",
    "\x1b[C": "right",
    "\x1b[D": "left",
    "\x1b[1;2C": "far right",
    "\x1b[1;2D": "far left",
    "\x1b[H": "home",
    "\x1b[F": "end",
    "\x1bOC": "right",
    "\x1bOD": "left",
    "\x1bOH": "home",
    "\x1bOF": "end",
    "\x1b[1~": "home",
    "\x1b[4~": "end",
    "\x04": "q",
    "\x1b": "q",
}


def can_read_keys() -> bool:
    """Whether somebody sits at a terminal whose keys can be read one by one."""
    if find_spec("termios") is None:  # not on every system
        return False
    return sys.stdin.isatty() and sys.stdout.isatty()


class Keys:
    """`with Keys() as keys: keys.read(0.1)`. The terminal is as before afterwards."""

    def __enter__(self) -> "Keys":
        import termios
        import tty

        self._fd = sys.stdin.fileno()
        self._typed = ""
        self._before = termios.tcgetattr(self._fd)
        tty.setcbreak(self._fd)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        import termios

        termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def read(self, timeout: float | None) -> str | None:
        """The name of the next key, or the character itself; None if none came within `timeout` seconds."""
        if not self._typed:
            if not select.select([self._fd], [], [], timeout)[0]:
                return None
            self._typed = os.read(self._fd, 256).decode(errors="replace") or "q"
        known = (self._typed[:size] for size in range(min(_LONGEST, len(self._typed)), 0, -1))
        key = next((one for one in known if one in _NAMES), self._typed[0])
        self._typed = self._typed.removeprefix(key)
        return _NAMES.get(key, key)
