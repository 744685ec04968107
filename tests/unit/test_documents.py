"""Commands in the documents exist, with the options that they are shown with; links lead to headings that exist."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from pathlib import Path

import pytest

from seltzer.api.reference import anchor
from seltzer.cli.main import arrange, build

REPO = Path(__file__).parents[2]
DOCUMENTS = [REPO / "README.md", REPO / "CONTRIBUTING.md", *sorted((REPO / "docs").glob("*.md"))]
ENDS = {"&&", "||", "|", ";", "<", ">"}


def blocks(document: Path) -> list[str]:
    """The lines of a document's code blocks; of the quickstart, whole commands in its sentences as well."""
    text = document.read_text()
    code = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    inline = re.findall(r"`(seltzer [^`\n]+)`", text) if document.name == "quickstart.md" else []
    return [*(line for block in code for line in block.splitlines()), *inline]


def commands(document: Path, name: str) -> list[tuple[str, ...]]:
    """Every call of a program in a document's code blocks, without what the shell does around it."""
    found = []
    for line in blocks(document):
        for call in (line.strip().removeprefix("$ "), *re.findall(r"\$\(([^)]*)\)", line)):
            if not re.match(rf"{name} |.*&& {name} ", call):
                continue
            lexer = shlex.shlex(call, posix=True, punctuation_chars="&|;<>")
            lexer.whitespace_split = True
            words = list(lexer)
            while name in words:
                words = words[words.index(name) + 1 :]
                end = next((at for at, word in enumerate(words) if word in ENDS), len(words))
                found.append(tuple(words[:end]))
    return found


SHOWN = [(document, words) for document in DOCUMENTS for words in commands(document, "seltzer")]


def test_the_documents_show_commands() -> None:
    count = Counter(document.name for document, _ in SHOWN)
    assert count["README.md"] >= 10
    assert count["quickstart.md"] >= 15
    assert (REPO / "docs/quickstart.md", ("sandbox", "kubeconfig", "--path")) in SHOWN


@pytest.mark.parametrize(
    ("document", "words"), SHOWN, ids=[f"{document.name}: {' '.join(words)}" for document, words in SHOWN]
)
def test_a_command_that_a_document_shows_is_understood(document: Path, words: tuple[str, ...]) -> None:
    build(words[0]).parse_args(arrange(list(words)), exit_on_error=False, print_error=False)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_make_has_the_targets_that_a_document_shows(document: Path) -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):(?!=)", (REPO / "Makefile").read_text(), re.MULTILINE))
    text = "\n".join(blocks(document)) + "\n".join(re.findall(r"`[^`\n]+`", document.read_text()))
    assert set(re.findall(r"(?:^|`|&& |\$ )make ([a-z][a-z-]*)", text, re.MULTILINE)) <= targets


def test_links_to_a_heading_lead_to_one() -> None:
    headings = {
        document: {anchor(title) for title in re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)}
        for document in DOCUMENTS
    }
    links = [
        (document, target, heading)
        for document in DOCUMENTS
        for target, heading in re.findall(r"\]\(([^)#:]*)#([^)]*)\)", document.read_text())
    ]
    assert links
    assert [
        f"{document.name}: {target}#{heading}"
        for document, target, heading in links
        if heading not in headings[(document.parent / target).resolve() if target else document]
    ] == []
