"""How warm a request is, that is how random its text: the entropy of the laws that its tokens are drawn from, in nats.

Temperature alone says little: at 1.0 code is nearly certain and a story is not, and top_p or top_k may leave one token.
But the surprisal of a drawn token, -log of its chance, has the entropy of its law as its mean, and it costs nothing,
for the law is known when the token is drawn. So the mean surprisal of a request's last tokens says how random it is;
in the beginning its temperature does. Greedy text has no entropy.
"""

from dataclasses import dataclass

AT_ONE = 1.0  # nats at temperature 1, before a request has shown its own
WEIGHT = 3.0  # tokens that this is worth
FADE = 0.8  # of old tokens, per token: a text is now certain, now random, and the last few tokens tell
STAGES = (0.15, 0.6)  # nats at which the next stage begins


@dataclass
class Warmth:
    """Of one request. entropy: mean nats per token as of now."""

    entropy: float
    weight: float = WEIGHT

    @classmethod
    def of(cls, temperature: float) -> "Warmth":
        """What a request's temperature lets expect."""
        return cls(AT_ONE * min(temperature, 2.0))

    def learn(self, tokens: int, surprisal: float) -> None:
        """surprisal: the sum over these tokens, in nats."""
        old = self.weight * FADE**tokens
        self.weight = old + tokens
        self.entropy = (self.entropy * old + surprisal) / self.weight

    @property
    def stage(self) -> int:
        """Requests of one stage are taken to be alike: as good as certain, in between, random."""
        return sum(self.entropy >= edge for edge in STAGES)
