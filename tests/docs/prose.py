# SPDX-License-Identifier: Apache-2.0
"""Holds prose to its limits: a cell of a table is a phrase, and sentences are short."""

import re
import statistics

from blocks import Finding

MAX_CELL = 200  # characters
MAX_MEDIAN = 18  # words of a sentence, in the median of a document

CELL = re.compile(r"(?<!\\)\|")
MARK = re.compile(r"<!--.*?-->")  # of a text within a cell that is written by a script
ITEM = re.compile(r"(?:[-*]|\d+\.) +")


def sentences(prose):
    """Those of paragraphs and items, outside of tables, headings and comments."""
    paragraph = []
    for line in [*prose.splitlines(), ""]:
        text = line.strip()
        item = ITEM.match(text)
        if not text or item or text.startswith(("|", "#", "<!--")):
            yield from re.split(r"(?<=[.!?]) ", " ".join(paragraph)) if paragraph else ()
            paragraph = [text[item.end() :]] if item else []
        else:
            paragraph.append(text)


def check_prose(document):
    """What is wrong with the prose of a Document."""
    for number, line in enumerate(document.prose.splitlines(), 1):
        cells = CELL.split(MARK.sub("", line).strip().strip("|")) if line.lstrip().startswith("|") else ()
        for length in (len(cell.strip()) for cell in cells):
            if length > MAX_CELL:
                yield Finding(document.path, number, f"a cell of {length} characters: {MAX_CELL} at most, the rest below")
    words = [len(sentence.split()) for sentence in sentences(document.prose)]
    if words and (median := statistics.median(words)) > MAX_MEDIAN:
        yield Finding(document.path, 1, f"sentences have {median} words in the median: {MAX_MEDIAN} at most")
