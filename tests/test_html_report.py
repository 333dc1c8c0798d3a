"""The page of `--html`: what stands in it, that nothing in it runs or loads, and what a browser makes of it."""

import html.parser
import os
import re
import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import pytest
from click.testing import CliRunner

from migrate_pallas.cli import command

KERNELS = '''\
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def kernel(x_ref, o_ref):
    """<script>alert("&amp; $path")</script>"""
    pl.run_scoped(body, pltpu.VMEM((8,), "<b>&"), collective_axes="i")


def double(x, **kw):
    return pl.pallas_call(
        kernel,
        out_shape=x,
    )(x)


def unclear(x, a, b):
    return pl.pallas_call(kernel, **a, **b)(x)
'''
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)  # fmt: skip
# A page of its own, with no other site to ask, even in a container without a user namespace.
HEADLESS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")


@pytest.fixture(autouse=True)
def _in_a_repository(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in (".git", "repo/kernels", "repo/tests"):
        Path(name).mkdir(parents=True)
    Path("repo/kernels/a.py").write_text(KERNELS)
    Path("repo/tests/test_a.py").write_text(KERNELS.partition("def unclear")[0])


def migrate(*arguments):
    return CliRunner().invoke(command, ["--to=cpu", *arguments], standalone_mode=False)


def page(*arguments):
    migrate("--check", "--html=page.html", *(arguments or ["repo"]))
    return Path("page.html").read_text(encoding="utf-8")


class Parsed(html.parser.HTMLParser):
    """The elements and the text of a page, which must be well formed."""

    VOID = ("meta",)

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.words = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self):
        return " ".join("".join(self.words).split())


class TestPage:
    def test_is_well_formed_and_neither_runs_nor_loads_anything(self):
        text = page()
        parsed = Parsed(text)
        assert not {"script", "link", "img", "iframe", "b>"} & set(parsed.tags)
        names = {name for name, _ in parsed.attributes}
        assert not names & {"src", "srcset", "data"}
        assert not [name for name in names if name.startswith("on")]
        assert all(value.startswith("#") for name, value in parsed.attributes if name == "href")
        assert not re.search(r"url\(|@import|https?:", text.partition("</style>")[0])

    def test_shows_source_as_it_is(self):
        Path("repo/kernels/a.py").rename("repo/kernels/<i>&$x.py")
        text = Parsed(page()).text
        assert '"""<script>alert("&amp; $path")</script>"""' in text
        assert 'pltpu.VMEM((8,), "<b>&")' in text
        assert "repo/kernels/<i>&$x.py" in text

    def test_has_the_totals_and_a_row_for_each_directory(self):
        text = Parsed(page()).text
        assert "4 arguments to change in 2 files" in text
        assert "67% of kernels need no help" in text
        assert "repo/kernels 2 2 " in text
        assert "repo/tests 1 2 " in text

    def test_a_bar_says_what_it_shows(self):
        assert 'aria-label="1 migrated, 1 needs a person"' in page()

    def test_marks_the_words_that_differ_and_keeps_the_rest_side_by_side(self):
        text = page("repo/tests")
        assert "<ins> if on_tpu() else ()</ins>" in text
        added = "interpret=not on_tpu(),"
        [row] = [row for row in text.split('<div class="row')[1:] if added in row]
        left, right = row.split('<div class="new">')
        assert left.startswith('"><div class="none">') and added in right

    def test_tells_what_a_file_gets_besides(self):
        assert "<code>import jax</code>, <code>def on_tpu()</code>" in page()

    def test_each_code_leads_to_its_explanation(self):
        parsed = Parsed(page())
        codes = {value[1:] for name, value in parsed.attributes if name == "href"}
        assert {"MP101", "MP110", "MP202"} <= codes
        assert codes <= {value for name, value in parsed.attributes if name == "id"}
        assert "Use instead:" in parsed.text

    def test_a_file_that_failed_says_why(self):
        Path("repo/broken.py").write_text(KERNELS + "x = = 1\n")
        text = Parsed(page()).text
        assert "1 of 3 files failed" in text
        assert "MP901 line 19 not Python" in text

    def test_says_of_a_written_tree_what_was_changed(self):
        migrate("--write", "--html=page.html", "repo")
        text = Parsed(Path("page.html").read_text()).text
        assert "4 arguments changed in 2 files" in text

    def test_of_nothing_says_so(self):
        Path("repo/empty").mkdir()
        Path("repo/empty/a.py").write_text("x = 1\n")
        assert "Nothing to change, and nothing to tell." in page("repo/empty")

    def test_takes_the_place_of_the_last_one_and_comes_besides_the_diff(self):
        page()
        done = migrate("--diff", "--html=page.html", "repo/tests")
        assert done.stdout == migrate("--diff", "repo/tests").stdout != ""
        assert Parsed(Path("page.html").read_text()).text.count("arguments to change") == 2

    def test_a_name_that_is_no_text_is_spelled_out(self):
        Path("repo/kernels/a.py").rename(os.fsdecode(b"repo/kernels/k\xff.py"))
        assert r"repo/kernels/k\udcff.py" in page()

    def test_that_cant_be_written_is_told_before_the_work(self):
        done = migrate("--write", "--html=gone/page.html", "repo")
        assert done.return_value == 2
        assert "--html: gone/page.html: No such file or directory" in done.stderr
        assert Path("repo/kernels/a.py").read_text() == KERNELS


@pytest.mark.skipif(BROWSER is None, reason="no chromium or google-chrome on the PATH")
class TestBrowser:
    def run(self, *options):
        done = subprocess.run(
            [BROWSER, *HEADLESS, *options, Path("page.html").absolute().as_uri()],
            capture_output=True,
            check=True,
            timeout=60,
        )
        return done.stdout.decode()

    def test_reads_the_page_as_it_was_meant(self):
        text = page()
        seen = Parsed(re.sub(r"<!DOCTYPE html>", "", self.run("--dump-dom")))
        meant = Parsed(text)
        assert (seen.tags, seen.text) == (meant.tags, meant.text)

    @pytest.mark.parametrize(("scheme", "colour"), [(1, "f6f7f9"), (0, "12151a")])
    def test_is_light_or_dark_as_the_reader_likes(self, scheme, colour):
        page()
        self.run(f"--blink-settings=preferredColorScheme={scheme}", "--screenshot=page.png")
        assert first_pixel(Path("page.png").read_bytes()) == bytes.fromhex(colour)


def first_pixel(png):
    """The red, green and blue of the pixel in the upper left of a PNG (RFC 2083), which no filter changes."""
    data, place = b"", 8
    while place < len(png):
        length, kind = struct.unpack(">I4s", png[place : place + 8])
        data += png[place + 8 : place + 8 + length] if kind == b"IDAT" else b""
        place += 12 + length
    return zlib.decompress(data)[1:4]
