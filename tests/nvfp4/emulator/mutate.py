# SPDX-License-Identifier: Apache-2.0
"""Changes C++ sources by tokens, so that a mutant does not depend on how its source is formatted.

A change is (old, new). The tokens of `old` must occur exactly once in all sources; whitespace and comments
between them do not count. `new` takes their place.
"""

import re

TOKEN = re.compile(r"""//[^\n]*|/\*.*?\*/|\s+|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'|\w+|.""", re.DOTALL)


class MutantError(Exception):
    """A change does not fit the sources: the mutant must be adapted to them."""


def tokens(text):
    """(token, begin, end) of each token of a C++ text."""
    return [
        (match[0], *match.span())
        for match in TOKEN.finditer(text)
        if not match[0].isspace() and not match[0].startswith(("//", "/*"))
    ]


def find(found, wanted):
    """(begin, end) in the text of each place where `found`, the text's tokens, has the tokens `wanted`."""
    names = [name for name, _, _ in found]
    return [
        (found[at][1], found[at + len(wanted) - 1][2])
        for at in range(len(names) - len(wanted) + 1)
        if names[at : at + len(wanted)] == wanted
    ]


def mutate(sources, changes):
    """A copy of `sources`, name -> text, with every change made. All changes are looked for before one is made."""
    found = {name: tokens(text) for name, text in sources.items()}
    edits = []
    for old, new in changes:
        wanted = [name for name, _, _ in tokens(old)]
        places = [(name, *place) for name in sources for place in find(found[name], wanted)]
        if len(places) != 1:
            raise MutantError(f"occurs {len(places)} times, once is expected: {old}")
        edits.append((*places[0], new))
    mutated = dict(sources)
    for name, begin, end, new in sorted(edits, key=lambda edit: edit[1], reverse=True):
        mutated[name] = mutated[name][:begin] + new + mutated[name][end:]
    return mutated


def reformatted(text):
    """The same tokens, one on each line, but for preprocessor lines."""
    return "\n".join(name for name, _, _ in tokens(text))
