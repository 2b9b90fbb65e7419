"""The tables of RFC 3284: integers, the default instruction code table and the address cache."""

from __future__ import annotations

from typing import Final

NOOP, ADD, RUN, COPY = 0, 1, 2, 3
NEAR_SLOTS: Final = 4
SAME_SLOTS: Final = 3

Instruction = tuple[int, int, int]  # kind, size (0: it follows as a number), address mode


def varint(value: int) -> bytes:
    """An integer, base 128, most significant part first."""
    out = [value & 0x7F]
    while value := value >> 7:
        out.append(value & 0x7F | 0x80)
    return bytes(reversed(out))


def _default_codes() -> tuple[tuple[Instruction, Instruction], ...]:
    """RFC 3284 5.6: what each of the 256 instruction codes stands for."""
    nothing = (NOOP, 0, 0)
    modes = range(2 + NEAR_SLOTS + SAME_SLOTS)
    codes: list[tuple[Instruction, Instruction]] = [((RUN, 0, 0), nothing)]
    codes += [((ADD, size, 0), nothing) for size in range(18)]
    codes += [((COPY, size, mode), nothing) for mode in modes for size in (0, *range(4, 19))]
    codes += [((ADD, add, 0), (COPY, copy, m)) for m in range(6) for add in range(1, 5) for copy in range(4, 7)]
    codes += [((ADD, add, 0), (COPY, 4, mode)) for mode in range(6, 9) for add in range(1, 5)]
    codes += [((COPY, 4, mode), (ADD, 1, 0)) for mode in modes]
    assert len(codes) == 256
    return tuple(codes)


CODES: Final = _default_codes()


def copy_code(mode: int, size: int) -> bytes:
    """The instruction that copies `size` bytes by an address of this mode."""
    first = 19 + 16 * mode
    return bytes([first + size - 3]) if 4 <= size <= 18 else bytes([first]) + varint(size)


class AddressCache:
    """RFC 3284 5.1: recent addresses, so that they can be said in few bytes. Encoder and decoder keep the same one."""

    __slots__ = ("_near", "_next", "_same")

    def __init__(self) -> None:
        self._near = [0] * NEAR_SLOTS
        self._next = 0
        self._same = [0] * (SAME_SLOTS * 256)

    def update(self, address: int) -> None:
        self._near[self._next] = address
        self._next = (self._next + 1) % NEAR_SLOTS
        self._same[address % (SAME_SLOTS * 256)] = address

    def resolve(self, mode: int, value: int, here: int) -> int:
        """The address that a number of the modes self, here and near means."""
        if mode == 0:
            return value
        return here - value if mode == 1 else self._near[mode - 2] + value

    def resolve_same(self, mode: int, byte: int) -> int:
        return self._same[(mode - 2 - NEAR_SLOTS) * 256 + byte]

    def encode(self, address: int, here: int) -> tuple[int, bytes]:
        """The mode and bytes that say `address` most briefly; the cache then knows it."""
        slot = address % (SAME_SLOTS * 256)
        if self._same[slot] == address:
            best = 2 + NEAR_SLOTS + slot // 256, bytes([slot % 256])
        else:
            distances = [address, here - address, *(address - near for near in self._near)]
            distance, mode = min((distance, mode) for mode, distance in enumerate(distances) if distance >= 0)
            best = mode, varint(distance)
        self.update(address)
        return best
