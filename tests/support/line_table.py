# SPDX-License-Identifier: Apache-2.0
"""What the line tables of a cubin name."""

import struct


def text_at(data, at):
    end = data.index(b"\0", at)
    return data[at:end].decode(), end + 1


def number_at(data, at):
    """ULEB128."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def section(image, wanted):
    """A section of a little-endian ELF64 file."""
    assert image[:6] == b"\x7fELF\x02\x01"
    (start,) = struct.unpack_from("<Q", image, 0x28)
    size, count, names = struct.unpack_from("<HHH", image, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", image, start + i * size) for i in range(count)]
    strings = headers[names][4]
    for name, _, _, _, offset, length in headers:
        if text_at(image, strings + name)[0] == wanted:
            return image[offset : offset + length]
    raise AssertionError(f"the cubin has no {wanted}")


def files_of_line_table(image):
    """The paths that DWARF 2 to 4 line tables name (DWARF 4, 6.2.4), but for the one text that is
    in NVRTC itself."""
    data, at, paths = section(image, ".debug_line"), 0, set()
    while at < len(data):
        length, version, rest = struct.unpack_from("<IHI", data, at)
        assert length < 0xFFFFFFF0 and 2 <= version <= 4, (length, version)
        program = at + 10 + rest
        i = at + 10 + (4 if version < 4 else 5)  # to opcode_base
        i += data[i]  # itself, and the lengths of opcode_base - 1 opcodes
        folders = [""]
        while data[i]:
            folder, i = text_at(data, i)
            folders.append(folder)
        i += 1
        while data[i]:
            name, i = text_at(data, i)
            folder, i = number_at(data, i)
            _, i = number_at(data, i)
            _, i = number_at(data, i)
            if name != "__nv_nvrtc_builtin_header.h":
                paths.add(f"{folders[folder]}/{name}")
        assert i < program, (i, program)  # NVIDIA's have four bytes more
        at += 4 + length
    return paths
