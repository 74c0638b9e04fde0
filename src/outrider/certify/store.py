"""A certificate as a JSON file, written after every batch so that an interrupted run loses nothing."""

import json
from pathlib import Path

from outrider.certify.records import Certificate
from outrider.errors import OptionError
from outrider.files import write_whole


def save(certificate: Certificate, path: Path) -> None:
    """The file holds the whole certificate or what it held before, never a part."""
    write_whole(path, json.dumps(certificate.to_dict(), indent=1, ensure_ascii=False))


def restore(path: Path) -> Certificate:
    """The certificate in the file. Raises OptionError if there is none."""
    try:
        return Certificate.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise OptionError(f"cannot resume from {path}: {error.strerror}; leave out --resume to begin anew") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise OptionError(f"{path} holds no certificate ({error}); name another file to begin anew") from error
