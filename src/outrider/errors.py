"""Every error that Outrider raises on purpose.

    OutriderError
    |-- OptionError            an option has a wrong name or value            (also a ValueError)
    |-- PromptError            a prompt is empty, too long or malformed       (also a ValueError)
    |-- UnsupportedError       the thing asked for cannot be done exactly     (also a NotImplementedError)
    |-- ModelError             a model cannot be found, read or used
    |   `-- PairingError       a drafter does not fit its target
    |-- CapacityError          no cache row or queue place is free
    |-- DrafterError           a drafter raised, or broke its contract
    |-- ProcessorError         a user's logits processor raised, or returned nonsense
    |-- TargetError            a target broke its contract (lengths, shapes, NaN)
    `-- EngineError            the engine cannot go on with a request

OutriderWarning (a RuntimeWarning) tells of what went wrong and changed no text: an observer or a policy that raised,
or a drafter that is done without because the user allowed it.

Messages name the value, the limit, and the way out.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class OutriderError(Exception):
    """Root of everything that Outrider raises on purpose."""


class OutriderWarning(RuntimeWarning):
    """Something went wrong beside the text, which is as it would have been."""


class OptionError(OutriderError, ValueError):
    """An option has an unknown name or a value outside its range."""


class PromptError(OutriderError, ValueError):
    """The prompt is empty, too long, or holds ids that the target does not know."""


class UnsupportedError(OutriderError, NotImplementedError):
    """What was asked for cannot be done exactly, so it is not done at all."""


class ModelError(OutriderError):
    """A model cannot be found, read or used."""


class PairingError(ModelError):
    """A drafter does not fit its target."""


class CapacityError(OutriderError):
    """No cache row or queue place is free."""


class DrafterError(OutriderError):
    """A drafter raised, or broke its contract."""


class ProcessorError(OutriderError):
    """A user's logits processor raised, or returned something that is not a law."""


class TargetError(OutriderError):
    """A target broke its contract."""


class EngineError(OutriderError):
    """The engine cannot go on with a request."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for a near miss, else the list of what is known."""
    names = sorted(known)
    close = get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(names)}"
