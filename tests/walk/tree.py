# SPDX-License-Identifier: Apache-2.0
"""Header trees that change at random, and the compiler flags to compile them with.

Each text has a level. A text of level n includes files of higher levels only, and a file of level n has a
text of its level or above, so that no include is recursive. Each text mixes constants into the kernel's
only result, so that the machine code shows which texts were read, and in which order.
"""

import os
import shutil
import subprocess

HEADERS = ("a.h", "b.h", "c.h", "sub/d.h", "e.h", "f.h")
FOLDERS = ("src", "i0", "i1", "i2")
MACROS = ("M0", "M1", "M2")
MARKS = tuple(0x1000 + 0x111 * i for i in range(4))  # few, so that states recur, and are then hits


class Text:
    """A random text of a header."""

    def __init__(self, random, level):
        self.level = level
        guard = random.choice(("", "", "once", "once", "once", "macro"))
        lines = {"": [], "once": ["#pragma once"],
                 "macro": [f"#ifndef GUARD_{level}", f"#define GUARD_{level}"]}[guard]  # fmt: skip
        lines.append(f"MIX(0x{random.choice(MARKS):04x})")
        for _ in range(random.randrange(1, 4)):
            lines += self.part(random)
        if guard == "macro":
            lines.append("#endif")
        self.lines = lines

    def part(self, random):
        kind = random.choice(("include", "include", "include", "probe", "next", "macro", "define"))
        macro = random.choice(MACROS)
        if kind == "macro":
            return [f"#ifdef {macro}", f"MIX({macro} + 0x{random.choice(MARKS):04x})", "#else",
                    "MIX(0x7)", "#endif"]  # fmt: skip
        if kind == "define":
            return [f"#undef {macro}"] + [f"#define {macro} {random.randrange(9)}"] * random.randrange(2)
        first = self.level if kind == "next" else self.level + 1
        if first >= len(HEADERS):
            return []
        name = HEADERS[random.randrange(first, len(HEADERS))]
        if kind == "next":
            return [f"#if __has_include_next(<{name}>)", f"#include_next <{name}>", "#else",
                    "MIX(0x9)", "#endif"]  # fmt: skip
        quoted = random.choice((f'"{name}"', f'"{name}"', f'"../{name}"', f"<{name}>"))
        if kind == "probe" or quoted.startswith('"../') or random.random() < 0.8:
            return [f"#if __has_include({quoted})", f"#include {quoted}", "#else",
                    "MIX(0xb)", "#endif"]  # fmt: skip
        return [f"#include {quoted}"]

    def with_other_mark(self, random):
        """Returns a text of the same size with another mark."""
        other = Text.__new__(Text)
        other.level, other.lines = self.level, list(self.lines)
        at = next(i for i, line in enumerate(other.lines) if line.startswith("MIX(0x1"))
        other.lines[at] = f"MIX(0x{random.choice(MARKS):04x})"
        return other

    def render(self):
        return "\n".join(self.lines) + "\n"


def source_text(random):
    """Returns a random text of the kernel, whose body includes headers."""
    includes = []
    for _ in range(random.randrange(3, 6)):
        name = HEADERS[random.randrange(4)]
        quoted = random.choice((f'"{name}"', f"<{name}>"))
        includes += [f"#if __has_include({quoted})", f"#include {quoted}", "#endif"]
    mixed = [line for macro in MACROS for line in (f"#ifdef {macro}", f"MIX({macro})", "#endif")]
    return "\n".join((
        "#define MIX(x) h = (h ^ (x)) * 1099511628211ull;",
        'extern "C" __global__ void k(unsigned long long* o) {',
        "unsigned long long h = 14695981039346656037ull;",
        *mixed, *includes, *mixed, "*o = h;", "}", ""))  # fmt: skip


class Tree:
    """A checkout on disk, and the flags of its kernel. Every change is a method `do_…`."""

    def __init__(self, folder, random):
        self.scratch = folder
        self.number = 0
        self.root = folder / "t0"
        self.work = folder / "work"  # the working folder, which is searched first for a relative -include
        self.work.mkdir()
        for name in FOLDERS:
            (self.root / name / "sub").mkdir(parents=True)
        self.known = {}  # the text of each file, by its path below the root
        self.source = source_text(random)
        self.write_source()
        self.include = ["i0", "i1", "i2"]
        self.flags = []
        for _ in range(10):
            self.do_write(random)
        for number, value in enumerate((3, 5)):
            (self.root / "i2" / f"forced{number}.h").write_text(
                f"#undef M{number}\n#define M{number} {value}\n")  # fmt: skip

    @property
    def unit(self):
        return self.root / "src" / "k.cu"

    def arguments(self):
        """Returns -I, -D, -U and -include as on a command line."""
        folders = [f"-I{self.root / name}" for name in self.include]
        return folders + list(self.flags)

    def write_source(self):
        self.unit.write_text(self.source)

    # Paths.

    def place(self, random):
        level = random.randrange(len(HEADERS))
        return self.root / random.choice(FOLDERS) / HEADERS[level], level

    def headers(self):
        """Returns (path, level) of each header that exists, without dangling links."""
        found = []
        for folder in FOLDERS:
            for level, name in enumerate(HEADERS):
                path = self.root / folder / name
                if path.is_file():
                    found.append((path, level))
        return found

    def existing(self, random):
        found = self.headers()
        return random.choice(found) if found else (None, 0)

    def text_at(self, path):
        return self.known.get(os.path.relpath(path.resolve(), self.root))

    def keep(self, path, text):
        self.known[os.path.relpath(path.resolve(), self.root)] = text

    # Changes. Each returns a description of what it did, or None if it could do nothing.

    def do_write(self, random):
        path, level = self.place(random)
        text = Text(random, random.randrange(level, len(HEADERS)))
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            path.unlink()
        path.write_text(text.render())
        self.keep(path, text)
        return f"write {path}"

    def edit(self, random, how):
        path, level = self.existing(random)
        text = self.text_at(path) if path else None
        if text is None:
            return None
        before = path.stat()
        changed = text.with_other_mark(random)
        if how == "rename":
            beside = path.parent / "new"
            beside.write_text(changed.render())
            os.utime(beside, ns=(before.st_atime_ns, before.st_mtime_ns))
            os.rename(beside, path)
        else:
            with open(path, "r+", encoding="utf-8") as file:  # in place, so that it changes for every link
                file.write(changed.render())
                file.truncate()
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        self.keep(path, changed)
        return f"{how} {path}, stamps kept: {text.lines} -> {changed.lines}"

    def do_edit_in_place(self, random):
        return self.edit(random, "edit")

    def do_edit_by_rename(self, random):
        return self.edit(random, "rename")

    def do_remove(self, random):
        path, _ = self.existing(random)
        if path is None or len(self.headers()) < 5:
            return None
        path.unlink()
        return f"remove {path}"

    def link(self, random, kind):
        """Gives a text another name that its level allows."""
        path, level = self.existing(random)
        text = self.text_at(path) if path else None
        if text is None:
            return None
        name = HEADERS[random.randrange(text.level + 1)]
        other = self.root / random.choice(FOLDERS) / name
        if other == path or (other.exists() and os.path.samefile(other, path)):
            return None
        other.parent.mkdir(parents=True, exist_ok=True)
        other.unlink(missing_ok=True)
        if kind == "hard":
            os.link(path.resolve(), other)
            self.keep(other, text)
        elif kind == "symbolic":
            other.symlink_to(os.path.relpath(path.resolve(), other.parent.resolve()))
        else:
            shutil.copy2(path, other)
            self.keep(other, text)
        return f"{kind} {other} of {path}"

    def do_hard_link(self, random):
        return self.link(random, "hard")

    def do_symbolic_link(self, random):
        return self.link(random, "symbolic")

    def do_copy(self, random):
        return self.link(random, "copy")

    def do_turn_link_into_copy(self, random):
        linked = [path for path, _ in self.headers() if path.is_symlink() or path.stat().st_nlink > 1]
        if not linked:
            return None
        path = random.choice(linked)
        text = self.text_at(path)
        beside = path.parent / "new"
        shutil.copy2(path, beside)
        os.rename(beside, path)
        self.keep(path, text)
        return f"copy in place of the link {path}"

    def do_turn_copy_into_link(self, random):
        """Makes two files with the same bytes one file."""
        by_bytes = {}
        for path, _ in self.headers():
            by_bytes.setdefault(path.read_bytes(), []).append(path)
        same = [paths for paths in by_bytes.values() if len({p.stat().st_ino for p in paths}) > 1]
        if not same:
            return None
        one, other = random.sample(random.choice(same), 2)
        if os.path.samefile(one, other):
            return None
        other.unlink()
        if random.random() < 0.5:
            os.link(one.resolve(), other)
            self.keep(other, self.text_at(one))
        else:
            other.symlink_to(os.path.relpath(one.resolve(), other.parent.resolve()))
        return f"link {other} to {one} in place of a copy"

    def do_folder(self, random):
        """Moves a folder away or back, or exchanges it with another."""
        name, other = random.sample(("i0", "i1", "i2", "i0/sub", "i1/sub", "src/sub"), 2)
        path, away = self.root / name, self.root / name.replace("i", "away").replace("src", "gone")
        if away.exists() and not path.exists() and path.parent.is_dir():
            away.rename(path)
            return f"{path} is back"
        if random.random() < 0.5 and name.count("/") == other.count("/"):
            first, second, between = path, self.root / other, self.root / "between"
            if first.is_dir() and second.is_dir():
                first.rename(between)
                second.rename(first)
                between.rename(second)
                self.known = {self.swapped(key, name, other): text for key, text in self.known.items()}
                return f"exchange {first} and {second}"
        if path.is_dir() and name != "i2" and not away.exists():
            away.parent.mkdir(parents=True, exist_ok=True)
            path.rename(away)
            return f"{path} is away"
        return None

    @staticmethod
    def swapped(key, one, other):
        for was, now in ((one, other), (other, one)):
            if key.startswith(was + "/"):
                return now + key[len(was) :]
        return key

    def do_order(self, random):
        count = random.randrange(1, 4)
        self.include = random.sample(("i0", "i1", "i2"), count)
        if random.random() < 0.3:
            self.include.append(random.choice(("src", "i0/sub", "nowhere")))
        return f"include {self.include}"

    def do_flags(self, random):
        flags = []
        for _ in range(random.randrange(4)):
            macro = random.choice(MACROS)
            flags.append(random.choice((f"-D{macro}={random.randrange(4)}", f"-U{macro}")))
        if "i2" in self.include or any(self.work.iterdir()):
            for _ in range(random.randrange(3) if random.random() < 0.3 else 0):
                flags += ["-include", f"forced{random.randrange(2)}.h"]
        self.flags = flags
        return f"flags {flags}"

    def do_forced(self, random):
        """Adds, changes or removes a header of -include in the working folder."""
        number = random.randrange(2)
        path = self.work / f"forced{number}.h"
        if path.exists() and random.random() < 0.5:
            path.unlink()
            return f"no {path.name} in the working folder"
        value = random.randrange(4)
        path.write_text(f"#undef M{number}\n#define M{number} {value}\n")
        return f"{path.name} in the working folder: {value}"

    def do_source(self, random):
        before = self.unit.stat()
        self.source = source_text(random)
        self.write_source()
        os.utime(self.unit, ns=(before.st_atime_ns, before.st_mtime_ns))
        return "another source"

    def do_move(self, random):
        """Moves the whole tree: renames it, or copies it with or without its links."""
        self.number += 1
        new = self.scratch / f"t{self.number}"
        how = random.choice(("rename", "copy", "follow"))
        if how == "rename":
            self.root.rename(new)
        else:
            command = "-a" if how == "copy" else "-rLp"
            copied = subprocess.run(
                ["cp", command, self.root, new], stderr=subprocess.DEVNULL, check=False)  # fmt: skip
            if copied.returncode != 0:
                shutil.rmtree(new, ignore_errors=True)  # a dangling link cannot be followed
                return None
            if how == "follow":
                for path, _ in self.headers():
                    text = self.text_at(path)
                    if text is not None:
                        self.known[os.path.relpath(path, self.root)] = text
            shutil.rmtree(self.root)
        self.root = new
        return f"{how} the tree to {new}"


# The changes, and their weights.
CHANGES = (("do_edit_in_place", 5), ("do_edit_by_rename", 4), ("do_write", 3), ("do_remove", 2),
           ("do_hard_link", 2), ("do_symbolic_link", 2), ("do_copy", 3), ("do_turn_link_into_copy", 4),
           ("do_turn_copy_into_link", 4), ("do_folder", 3), ("do_order", 2), ("do_flags", 3),
           ("do_forced", 2), ("do_source", 1), ("do_move", 1))  # fmt: skip
