"""What the terminal shows: one function per step, each line at most 78 columns wide, legible without colour."""

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from outrider.explain.chances import DRAFT, DRAFTED, TARGET, WORDS, first_coins, lines
from outrider.explain.tables import PROMPT, Round, Story
from outrider.looks import STYLES

KEPT, OWN, BONUS = STYLES["accepted"], STYLES["recovered"], STYLES["bonus"]
STRUCK, UNKNOWN, QUIET = Style(color="red", strike=True), Style(dim=True), Style(dim=True)
COUNTS = ("no", "one", "two", "three", "four", "five", "six")


def pages(story: Story) -> Iterator[RenderableType]:
    """The whole explanation, step by step."""
    yield opening()
    written: list[str] = list(PROMPT)
    for number, played in enumerate(story.rounds, 1):
        yield drafting(number, played, written)
        yield scoring(played)
        yield keeping(played, written)
        written += [*played.kept, played.next_word]
    yield summary(story)
    yield chances_before()
    yield chances_after()


def opening() -> RenderableType:
    return Group(
        Text("Speculative decoding in one minute", "bold"),
        Text(),
        Text("A large language model (the target) writes one word* per pass, and a pass is"),
        Text("slow: all its weights must be fetched from memory. To check several words in"),
        Text("one pass costs it hardly more than to write one. So a small, quick model (the"),
        Text("draft) guesses a few words ahead, and the target checks them all at once."),
        Text("* really one token, a word or a piece of one", QUIET),
        Text(),
        _sentence("The prompt:  ", PROMPT, ()),
    )


def drafting(number: int, played: Round, written: Sequence[str]) -> RenderableType:
    count = len(played.drafted)
    if number == 1:
        says = f"1. The draft guesses {COUNTS[count]} words. That is quick."
    else:
        says = f"1. The draft guesses again: {COUNTS[count]} words, for {COUNTS[count + 1]} are left to write."
    return Group(
        Text(f"── Round {number} ".ljust(76, "─"), "bold"),
        Text(),
        Text(says),
        Text(),
        _sentence("   ", written, [(word, UNKNOWN) for word in played.drafted]),
    )


def scoring(played: Round) -> RenderableType:
    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False, padding=(0, 1))
    table.add_row("   the draft guessed", *played.drafted, "")
    table.add_row("   the target says", *(_answer(played, place) for place in range(len(played.answers))))
    table.add_row("", *(_verdict(played, place) for place in range(len(played.answers))))
    return Group(
        Text("2. The target reads the whole guess in one pass. At every place it says which"),
        Text("   word it would write there itself:"),
        table,
    )


def _answer(played: Round, place: int) -> Text:
    return Text(played.answers[place], QUIET if place > played.num_kept else Style())


def _verdict(played: Round, place: int) -> Text:
    if place < played.num_kept:
        return Text("same", KEPT)
    if place == played.num_kept:
        return Text("extra word", BONUS) if played.bonus else Text("differs", Style(color="red"))
    return Text("no use", QUIET)


def keeping(played: Round, written: Sequence[str]) -> RenderableType:
    own = (played.next_word, BONUS if played.bonus else OWN)
    words = [(word, KEPT) for word in played.kept] + [(word, STRUCK) for word in played.struck] + [own]
    count = played.num_kept + 1
    return Group(
        *(_all_kept(played) if played.bonus else _some_struck(played)),
        Text(),
        _sentence("   ", written, words),
        Text(),
        Text(f"   {COUNTS[count].capitalize()} words written, and the target ran once.", "bold"),
    )


def _some_struck(played: Round) -> list[Text]:
    guess, *after = played.struck
    also = f', and with it "{" ".join(after)}", which builds on it' if after else ""
    return [
        _mixed("3. ", (f'"{" ".join(played.kept)}"', KEPT), " is what the target would have written: kept."),
        _mixed("   ", (f'"{guess}"', STRUCK), f" is not: struck out{also}."),
        _mixed(
            "   In its place comes the target's own word, ", (f'"{played.next_word}"', OWN), ", from that same pass."
        ),
    ]


def _all_kept(played: Round) -> list[Text]:
    return [
        _mixed("3. ", (f'"{" ".join(played.kept)}"', KEPT), " is kept: every guess was right. What the target says"),
        _mixed("   after the last one is a bonus word, ", (f'"{played.next_word}"', BONUS), ", at no further cost."),
    ]


def summary(story: Story) -> RenderableType:
    with_draft, alone = story.speculative.stats.rounds, story.plain.stats.rounds
    table = Table(box=box.SIMPLE, pad_edge=False, padding=(0, 1))
    for heading in ("", "words", "target passes", "text"):
        table.add_column(heading)
    words = str(len(story.text))
    table.add_row("   with the draft", words, str(with_draft), " ".join(story.text))
    table.add_row("   target alone", words, str(alone), " ".join(story.text) if story.equal else "ANOTHER TEXT")
    return Group(
        Text("── The result ".ljust(76, "─"), "bold"),
        table,
        Text("The same words: only what the target itself would write is ever kept. A bad"),
        Text("guess costs time, never quality. The better the guesses, the fewer the passes."),
    )


def chances_before() -> RenderableType:
    table = Table(box=box.SIMPLE, pad_edge=False, padding=(0, 1))
    table.add_column("   next word")
    for word in WORDS:
        table.add_column(word, justify="right")
    table.add_row("   target", *(_percent(chance) for chance in TARGET))
    table.add_row("   draft", *(_percent(chance) for chance in DRAFT))
    return Group(
        Text("── When words are drawn by chance ".ljust(76, "─"), "bold"),
        Text(),
        Text("Above temperature 0 there is no single right word, but a chance for each."),
        Text('After "the kiln", say:'),
        table,
        Text(f'The draft drew "{WORDS[DRAFTED]}", which it likes more than the target does.'),
    )


def chances_after() -> RenderableType:
    drafted, excess = lines()[DRAFTED], [line for line in lines() if line.excess > 0]
    kept, replaced = first_coins()
    instead = " or ".join(f'"{line.word}" ({_percent(line.excess)})' for line in excess)
    return Group(
        _mixed(f"Keep it with chance min(1, target / draft) = {drafted.target:.2f} / {drafted.draft:.2f} = ",
               (_percent(drafted.keep), Style(bold=True)), "."),
        Text("Otherwise draw again, only from what the target likes more than the draft"),
        Text(f"does (target - draft, where positive): {instead}."),
        Text(),
        _mixed(f"   coin {kept.value:.2f}: below {drafted.keep:.2f}, so keep       ", (kept.word, KEPT)),
        _mixed(f"   coin {replaced.value:.2f}: not below {drafted.keep:.2f}, so strike ",
               (drafted.word, STRUCK), ", draw ", (replaced.word, OWN)),
        Text(),
        Text("Add up both ways to each word, and the target's own chances come out exactly:"),
        _sums(),
        *_closing(),
    )  # fmt: skip


def _sums() -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False, padding=(0, 1))
    for heading in ("   word", "drafted and kept", "+ drawn again", "= written", "target"):
        table.add_column(heading, justify="left" if heading == "   word" else "right")
    for line in lines():
        parts = (line.from_draft, line.from_excess, line.written, line.target)
        table.add_row(f"   {line.word}", *(_percent(part) for part in parts))
    return table


def _closing() -> list[Text]:
    return [
        Text('That is the rule "rejection". Outrider\'s default, "identical", goes further:'),
        Text("the seed fixes the target's draw at every place before anything is drafted, so"),
        Text("the same seed writes the very same words, with a draft and without."),
    ]


def _sentence(lead: str, written: Sequence[str], words: Sequence[tuple[str, Style]]) -> Text:
    """Words already written, then others in their styles; struck words also get a mark that needs no colour."""
    line = Text(lead + " ".join(written))
    for word, style in words:
        line.append(" ").append(_marked(word, style), style)
    return line


def _marked(word: str, style: Style) -> str:
    if style is STRUCK:
        return f"-{word}-"
    if style is UNKNOWN:
        return f"{word}?"
    return word


def _mixed(*parts: str | tuple[str, Style]) -> Text:
    return Text.assemble(*parts)


def _percent(chance: float) -> str:
    return f"{100 * chance:.0f}%"
