"""Spark's LZ4 streams: blocks in the format of lz4-java's LZ4BlockOutputStream, not the LZ4 frame format.

Needs the packages lz4 and xxhash (`pip install 'rhino-state[verify]'`).
"""

from __future__ import annotations

import struct

from rhino_core.errors import IntegrityError

MAGIC = b"LZ4Block"
_HEADER = struct.Struct("<8sBiii")  # magic, method and level, packed length, unpacked length, checksum
_RAW, _LZ4 = 0x10, 0x20
_SEED = 0x9747B28C
_CHECKSUM_MASK = 0x0FFFFFFF
_BLOCK_BYTES_MAX = 32 * 1024 * 1024  # the largest block that lz4-java writes
_BLOCK_BYTES, _LEVEL = 32 * 1024, 5  # of the blocks that `pack` makes, as Spark's: level is log2(size) - 10


def available() -> bool:
    """Whether the packages are installed."""
    try:
        import lz4.block
        import xxhash
    except ImportError:
        return False
    return bool(lz4.block and xxhash)


def unpack(data: bytes) -> bytes:
    """The content of all blocks up to the end mark. Verifies each block's checksum. Raises IntegrityError."""
    pieces: list[bytes] = []
    offset, ended = 0, False
    while offset < len(data):
        piece, offset = _block(data, offset)
        ended = not piece
        pieces.append(piece)
    if not ended:
        raise IntegrityError(f"LZ4 stream of {len(data)} bytes has no end mark")
    return b"".join(pieces)


def pack(content: bytes) -> bytes:
    """Packs `content` into a stream of blocks, with the end mark."""
    import lz4.block
    import xxhash

    pieces = []
    for begin in range(0, len(content), _BLOCK_BYTES):
        plain = content[begin : begin + _BLOCK_BYTES]
        packed = lz4.block.compress(plain, store_size=False)
        method, body = (_LZ4, packed) if len(packed) < len(plain) else (_RAW, plain)
        checksum = xxhash.xxh32_intdigest(plain, _SEED) & _CHECKSUM_MASK
        pieces.append(_HEADER.pack(MAGIC, method | _LEVEL, len(body), len(plain), checksum) + body)
    return b"".join([*pieces, _HEADER.pack(MAGIC, _RAW | _LEVEL, 0, 0, 0)])


def _block(data: bytes, offset: int) -> tuple[bytes, int]:
    """One block's content (empty for the end mark), and the offset of the next block."""
    import lz4.block
    import xxhash

    if len(data) - offset < _HEADER.size:
        raise IntegrityError(f"LZ4 block header at byte {offset} is cut off")
    magic, token, packed, unpacked, checksum = _HEADER.unpack_from(data, offset)
    begin = offset + _HEADER.size
    method = token & 0xF0
    if magic != MAGIC or method not in (_RAW, _LZ4) or packed < 0 or not 0 <= unpacked <= _BLOCK_BYTES_MAX:
        raise IntegrityError(f"no LZ4 block header at byte {offset}")
    if begin + packed > len(data) or (method == _RAW and packed != unpacked):
        raise IntegrityError(f"LZ4 block at byte {offset} is cut off")
    content = data[begin : begin + packed]
    if method == _LZ4:
        try:
            content = lz4.block.decompress(content, uncompressed_size=unpacked)
        except lz4.block.LZ4BlockError as error:
            raise IntegrityError(f"LZ4 block at byte {offset}: {error}") from error
    if len(content) != unpacked:
        raise IntegrityError(f"LZ4 block at byte {offset} has {len(content)} bytes unpacked, announced {unpacked}")
    if unpacked and xxhash.xxh32_intdigest(content, _SEED) & _CHECKSUM_MASK != checksum:
        raise IntegrityError(f"LZ4 block at byte {offset}: its checksum does not match")
    return content, begin + packed
