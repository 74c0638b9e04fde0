"""A load benchmark: bounded clients ask a running server, with speculation and without, and the answers are compared.

Closed loop: each of C clients sends its next request when its last is answered. The two ways take turns on the same
prompts in the same order, so that a noisy machine harms both alike: without, with, with, without. Throughput counts
tokens per wall-clock second as long as every client has a request open: answers that are equally long end together in
plain decoding and one by one in speculation, so in the time after that the two would be compared at unequal numbers of
clients (`whole` counts it in). A ratio is given only where every answer is equal. A server that
reuses prefixes may find one way's prompts warmer than the other's; the one that `outrider loadtest` starts does not.
"""

import http.client
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import count
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from outrider.errors import EngineError, OptionError

ORDER = (False, True, True, False)


@dataclass(frozen=True)
class Sample:
    """One answered request. start: when it was sent (seconds of a clock); seconds: from there to the last byte."""

    tokens: int
    start: float
    seconds: float
    text: str
    rounds: int

    @property
    def end(self) -> float:
        return self.start + self.seconds


@dataclass(frozen=True)
class Level:
    """What one number of clients gave, with speculation and without. Speeds in tokens per second.

    whole: the ratio over whole loads, with the time in which some clients had nothing more to ask.
    """

    clients: int
    requests: int
    tokens: int
    speculative: float
    plain: float
    median_seconds: float
    slowest_seconds: float
    tokens_per_round: float
    equal: bool
    whole: float = 0.0

    @property
    def ratio(self) -> float | None:
        """Speed with speculation over without; None where answers differ."""
        return self.speculative / self.plain if self.equal and self.plain else None

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}


class LoadClient:
    """Asks one server. messages: one conversation per request, taken in turn."""

    def __init__(
        self, url: str, model: str, messages: Sequence[Any], *, max_tokens: int, api_key: str | None = None
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise OptionError(f"url is {url!r}; give one such as http://127.0.0.1:8000")
        self._host, self._port = parts.hostname, parts.port or 80
        self._model = model
        self._messages = messages
        self._max_tokens = max_tokens
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"

    def measure(self, clients: int, requests_each: int) -> Level:
        """One level, both ways twice. Raises EngineError."""
        total = clients * requests_each
        loads = [(speculate, *self._load(clients, total, speculate=speculate)) for speculate in ORDER]
        fast, fast_speed, fast_seconds = _joined(loads, speculate=True)
        plain, plain_speed, plain_seconds = _joined(loads, speculate=False)
        times = [sample.seconds for sample in fast]
        return Level(
            clients=clients,
            requests=len(fast),
            tokens=sum(sample.tokens for sample in fast),
            speculative=fast_speed,
            plain=plain_speed,
            median_seconds=median(times),
            slowest_seconds=max(times),
            tokens_per_round=sum(s.tokens for s in fast) / sum(s.rounds for s in fast),
            equal=[sample.text for sample in fast] == [sample.text for sample in plain],
            whole=plain_seconds / fast_seconds,
        )

    def warm_up(self) -> None:
        """One short request each way, so that the first level is not the one that pays for caches."""
        for speculate in (True, False):
            self._ask(0, speculate)

    def _load(self, clients: int, total: int, *, speculate: bool) -> tuple[list[Sample], float]:
        numbers, samples = count(), [Sample(0, 0.0, 0.0, "", 0)] * total
        start = time.perf_counter()

        def client(_: int) -> None:
            while (number := next(numbers)) < total:
                samples[number] = self._ask(number, speculate)

        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(client, range(clients)))
        return samples, time.perf_counter() - start

    def _ask(self, number: int, speculate: bool) -> Sample:
        body = {
            "model": self._model,
            "messages": self._messages[number % len(self._messages)],
            "max_tokens": self._max_tokens,
            "temperature": 0,
            "ignore_eos": True,  # every answer equally long, so that levels can be compared
            "speculation": {"enabled": speculate},
        }
        start = time.perf_counter()
        answer = self._post("/v1/chat/completions", body)
        usage = answer["usage"]
        text = answer["choices"][0]["message"]["content"]
        rounds = usage["speculation"]["rounds"]
        return Sample(usage["completion_tokens"], start, time.perf_counter() - start, text, rounds)

    def _post(self, path: str, body: Any) -> Any:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=900)
        try:
            connection.request("POST", path, json.dumps(body), self._headers)
            response = connection.getresponse()
            answer = json.loads(response.read())
        except (OSError, ValueError) as error:
            raise EngineError(f"no answer from {self._host}:{self._port}: {error}") from error
        finally:
            connection.close()
        if response.status != http.client.OK:
            raise EngineError(f"the server answered {response.status}: {answer['error']['message']}")
        return answer


def _joined(loads: Sequence[tuple[bool, list[Sample], float]], *, speculate: bool) -> tuple[list[Sample], float, float]:
    """Samples, tokens per second while all clients asked, and seconds, of all loads of one way."""
    chosen = [(samples, seconds) for way, samples, seconds in loads if way == speculate]
    tokens, busy = (sum(part) for part in zip(*(while_all_ask(samples) for samples, _ in chosen), strict=True))
    return [one for samples, _ in chosen for one in samples], tokens / busy, sum(seconds for _, seconds in chosen)


def while_all_ask(samples: Sequence[Sample]) -> tuple[float, float]:
    """Tokens and seconds from the first request to the first client that finds nothing more to ask.

    Of an answer that ends later the part that lies within counts, as if its tokens came evenly.
    """
    begin, last = min(one.start for one in samples), max(one.start for one in samples)
    end = min(one.end for one in samples if one.end > last)
    tokens = sum(one.tokens * (min(one.end, end) - one.start) / one.seconds for one in samples)
    return tokens, end - begin


def table(levels: Sequence[Level]) -> str:
    """Levels as lines for people."""
    heads = f"{'clients':>7} {'with':>9} {'without':>9} {'ratio':>7}"
    lines = [f"{heads} {'tokens/round':>13} {'median s':>9} {'slowest s':>10}"]
    for one in levels:
        ratio = f"{one.ratio:.2f}x" if one.ratio is not None else "DIFFERS"
        lines.append(
            f"{one.clients:>7} {one.speculative:>9.1f} {one.plain:>9.1f} {ratio:>7} {one.tokens_per_round:>13.2f} "
            f"{one.median_seconds:>9.2f} {one.slowest_seconds:>10.2f}"
        )
    return "\n".join(lines)


def run_levels(
    client: LoadClient, clients: Sequence[int], requests_each: int, on_level: Callable[[Level], None]
) -> list[Level]:
    """Every level, smallest first; on_level is told each as it is done."""
    client.warm_up()
    levels: list[Level] = []
    for number in sorted(clients):
        levels.append(client.measure(number, requests_each))
        on_level(levels[-1])
    return levels
