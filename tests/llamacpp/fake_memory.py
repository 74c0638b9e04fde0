"""llama.cpp's unified cache as plain Python: cells that hold one position and the sequences that share it."""

from dataclasses import dataclass, field

MOST = 1 << 30


@dataclass(eq=False)
class Cell:
    position: int
    token: int
    sequences: set[int]


@dataclass
class FakeMemory:
    """Answers the memory calls of llama.cpp, and `decode` with its checks of positions and of coupled sequences."""

    cells: list[Cell] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    refuses: bool = False

    def llama_get_memory(self, context: object) -> object:
        return self

    def llama_memory_seq_rm(self, memory: object, sequence: int, start: int, end: int) -> bool:
        self.calls.append("rm")
        if self.refuses:
            return False
        for cell in self.cells:
            if max(start, 0) <= cell.position < (end if end >= 0 else MOST):
                cell.sequences.discard(sequence)
        self.cells = [cell for cell in self.cells if cell.sequences]
        return True

    def llama_memory_seq_cp(self, memory: object, source: int, other: int, start: int, end: int) -> None:
        self.calls.append("cp")
        for cell in self.cells:
            if source in cell.sequences and max(start, 0) <= cell.position < (end if end >= 0 else MOST):
                cell.sequences.add(other)

    def llama_memory_seq_pos_min(self, memory: object, sequence: int) -> int:
        return min((cell.position for cell in self.cells if sequence in cell.sequences), default=-1)

    def llama_memory_seq_pos_max(self, memory: object, sequence: int) -> int:
        return max((cell.position for cell in self.cells if sequence in cell.sequences), default=-1)

    def decode(self, tokens: list[int], positions: list[int], sequences: list[list[int]]) -> None:
        """Write cells; refused are sequences that do not go on where they end, or that share a token but differ."""
        ends = {one: self.llama_memory_seq_pos_max(self, one) for ids in sequences for one in ids}
        starts = {one: self.llama_memory_seq_pos_min(self, one) for one in ends}
        for ids in sequences:
            assert len({(starts[one], ends[one]) for one in ids}) == 1, f"coupled sequences {ids} have diverged"
        for token, position, ids in zip(tokens, positions, sequences, strict=True):
            for one in ids:
                assert position == ends[one] + 1, f"sequence {one} goes on at {position} after {ends[one]}"
                ends[one] = position
            self.cells.append(Cell(position, token, set(ids)))

    def text(self, sequence: int) -> list[int]:
        held = sorted((cell for cell in self.cells if sequence in cell.sequences), key=lambda cell: cell.position)
        assert len({cell.position for cell in held}) == len(held), f"sequence {sequence} holds a position twice"
        return [cell.token for cell in held]

    def forget_window(self, sequence: int, first: int) -> None:
        """What a sliding window's cache may do: drop what lies before `first`."""
        self.llama_memory_seq_rm(self, sequence, 0, first)
