# SPDX-License-Identifier: Apache-2.0
"""No sentence of a docstring, of a comment or of a message has more than 30 words."""

import ast
import importlib.util
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

MOST = 30
SECTION = re.compile(r"(Args|Attributes|Example|Examples|Raises|References|Returns|Warns|Yields):")
NOT_PROSE = ("Example", "Examples", "References")
ITEM = re.compile(r"\**\w[\w, .]*(\([^)]*\))?: ")


def folders() -> dict[str, Path]:
    specs = [importlib.util.find_spec(name) for name in ("genmonitor", "genmonitor.callbacks")]
    return {spec.name: Path(spec.submodule_search_locations[0]) for spec in specs}


FILES = {
    f"{name}/{path.relative_to(folder).as_posix()}": path
    for name, folder in folders().items()
    for path in sorted(folder.rglob("*.py"))
}


def too_long(text: str) -> list[str]:
    """Return the sentences of a text with too many words; code between backquotes is one word."""
    prose = re.sub(r"``[^`]*``|`[^`]*`", "code", " ".join(text.split()))
    sentences = re.split(r"(?<=[.!?])\s+", re.sub(r"\b(et al|Eq|e\.g|i\.e)\. ", r"\1 ", prose))
    return [x for x in sentences if sum(bool(re.search(r"\w", word)) for word in x.split()) > MOST]


def paragraphs(docstring: str) -> Iterator[str]:
    """Yield the paragraphs and items of a docstring, without examples and references."""
    section, indent, words = "", 0, []
    for line in [*docstring.expandtabs().splitlines(), ""]:
        text = line.strip()
        head = SECTION.fullmatch(text)
        at = len(line) - len(line.lstrip())
        indent = indent or (at if section and not head else 0)  # of the first item of a section
        item = bool(indent and at == indent and ITEM.match(text))
        if head or item or not text or text.startswith((">>>", "- ")):
            yield " ".join(words)
            words = []
        if head:
            section, indent = head[1], 0
        elif section not in NOT_PROSE and not text.startswith((">>>", "...")):
            words.append(ITEM.sub("", text) if item else text.removeprefix("- "))
    yield " ".join(words)


def message(node: ast.AST) -> str:
    """Return a string or an f-string, with one word for each of its values."""
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "value" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def comments(source: str) -> Iterator[str]:
    """Yield the comments of a source, those in lines one after the other as one."""
    block, last = [], 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            alone = token.line.lstrip().startswith("#")
            if not alone or token.start[0] != last + 1:
                yield " ".join(block)
                block = []
            block.append(token.string.lstrip("# "))
            last = token.start[0] if alone else 0
    yield " ".join(block)


def long_sentences(source: str) -> list[str]:
    """Return all sentences of a source with too many words."""
    tree = ast.parse(source)
    bodies = [node.body for node in ast.walk(tree) if isinstance(getattr(node, "body", None), list)]
    documented = [
        x.value for body in bodies for x in body if isinstance(x, ast.Expr) and isinstance(x.value, ast.Constant)
    ]
    skipped = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    skipped -= {id(node) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)}
    skipped |= {id(node) for node in documented}
    texts = [x for node in documented if isinstance(node.value, str) for x in paragraphs(node.value)]
    texts += [message(node) for node in ast.walk(tree) if id(node) not in skipped and "arXiv" not in message(node)]
    texts += comments(source)
    return [sentence for text in texts if "\n  " not in text for sentence in too_long(text)]


@pytest.mark.parametrize("name", FILES)
def test_sentences_are_read_once(name):
    assert long_sentences(FILES[name].read_text(encoding="utf-8")) == []


LONG = " ".join(["word"] * 31)


@pytest.mark.parametrize(
    "source",
    [
        f'"""{LONG}."""',
        f'def f(x):\n    """Do it.\n\n    Args:\n        x: {LONG}.\n    """',
        f'X = 1\n"""{LONG}."""',
        f'raise ValueError("Short. {LONG}.")',
        f'raise ValueError(f"{LONG} {{x}}.")',
        f"# {LONG[:60]}\n# {LONG[60:]}",
    ],
)
def test_a_long_one_is_found(source):
    assert len(long_sentences(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        f'"""Short.\n\nExample:\n    >>> {LONG}\n    {LONG}\n"""',
        f'"""Short.\n\nReferences:\n    {LONG}.\n"""',
        f'"""`{LONG}` counts as one word, {LONG[:100]}."""',
        f'"""{LONG[:100]}. {LONG[:100]}."""',
        f'"""Short.\n\n- {LONG[:100]}\n- {LONG[:100]}\n"""',
    ],
)
def test_examples_references_and_lists_are_no_sentences(source):
    assert long_sentences(source) == []
