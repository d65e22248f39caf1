"""ldsearch report: one page on finished searches, the commands on it, and what it refuses."""

import html
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from ldsearch.reports.page import GENERATOR
from ldsearch.runs.run import Study, read_json
from ldsearch.search.health import verdict
from tests.cli.conftest import Ldsearch
from tests.cli.test_bad_input import expect_refusal
from tests.reports.test_page import Reader

RUN = "runs/tiny-evolve"


def commands(read: Reader) -> list[list[str]]:
    lines = [line for line in read.text.splitlines() if line.startswith("ldsearch ")]
    return [shlex.split(line) for line in lines]


def renamed(words: list[str], name: str) -> list[str]:
    at = words.index("--name") + 1
    return [*words[1:at], name, *words[at + 1 :]]


def test_a_page_on_one_run(ldsearch: Ldsearch, wild_place: Path) -> None:
    outcome = ldsearch.done("report", RUN)
    assert outcome.err == ""
    text = Path("report.html").read_text()
    read = Reader(text)
    front = pd.read_csv(f"{RUN}/frontier.csv")
    best, run = read_json(Path(RUN, "best.json")), read_json(Path(RUN, "run.json"))
    for row in front.to_dict("records"):
        assert f"{row['difference_low']:+.4f} to {row['difference_high']:+.4f}" in read.text
    assert f"{best['score']:.4f} on {best['examples']} search examples, by which it" in read.text
    assert f"{run['areas'][-1]:.4f}" in read.text  # the search's cheapest is its controls' too
    counts = run["this_call"]["search"]
    assert f"{counts['executed_macs'] / counts['full_pass_macs']:.1f}" in read.text
    assert "No health run of this supernet" in read.text
    linked = {str(own["href"]) for own in read.named("a") if not str(own["href"]).startswith("#")}
    assert linked == {path.name for path in Path().glob("report-*")}
    labelled = [str(own["aria-label"]) for own in read.named("svg")]
    # The explorer takes the place of one figure; each of its cards has a picture.
    pictures = [label for label in labelled if label.startswith("encoder of the sub-network")]
    assert len(labelled) - len(pictures) == len(linked) // 2 == 4
    assert len(pictures) == len(front)
    assert [own["href"] for own in read.named("a") if str(own.get("class", "")).startswith("point")] == [
        f"#1-searched-point-{at}" for at in range(len(front))
    ]
    shown = [own for own in read.named("div") if own.get("class") == "card" and "hidden" not in own]
    assert len(shown) == 1
    # In the table that the page opens with, and in that of the frontier.
    assert sum(own.get("class") == "chosen" for own in read.named("tr")) == 2
    assert f"ldsearch profile {RUN} --frontier" in read.text
    # Tables and figures can be read without seeing them; nothing is loaded.
    assert {own["scope"] for own in read.named("th")} == {"col", "row"}
    assert all(own["aria-label"] for own in read.named("div") if own.get("class") == "scroll")
    assert {"name": "generator", "content": GENERATOR} in read.named("meta")
    sources = [own.get("src", own.get("href")) for _, own in read.tags]
    assert not [source for source in sources if str(source).startswith("http")]
    titles = [
        line for line in read.text.splitlines() if line in ("Frontier", "Latency", "Importance of blocks")
    ]
    assert titles == ["Frontier"]  # chapters without content are left out
    # The same run gives the same page; its own files are replaced, no others.
    ldsearch.done("report", RUN)
    assert Path("report.html").read_text() == text
    Path("report-1-kept.png").write_bytes(b"mine")
    assert "report-1-kept.png" in expect_refusal(ldsearch, wild_place, "report", RUN)
    assert ".html" in expect_refusal(ldsearch, wild_place, "report", RUN, "--output", f"{RUN}/run.json")


def test_the_commands_on_the_page_rebuild_the_run(ldsearch: Ldsearch, wild_place: Path) -> None:
    ldsearch("report", RUN)
    train, search = commands(Reader(Path("report.html").read_text()))
    ldsearch.done(*renamed(train, "again"))
    ldsearch.done(*renamed(search, "again-evolve"))
    known, again = (read_json(Path(f"runs/{name}/training.json"))["identity"] for name in ("tiny", "again"))
    assert again == known
    for name in ("trials.csv", "controls.csv", "frontier.csv"):
        tables = [pd.read_csv(f"runs/{run}/{name}")["subnet"] for run in ("tiny-evolve", "again-evolve")]
        pd.testing.assert_series_equal(*tables)


def test_several_runs_side_by_side(ldsearch: Ldsearch, wild_place: Path) -> None:
    other = ("evolve", "--supernet", "runs/tiny", "--strategy", "every-other", "--keep", "2", "--swap")
    ldsearch.done(*other)
    shutil.copytree(RUN, "runs/<script>$a_b$")
    outcome = ldsearch.done(
        "report", "runs/<script>$a_b$", "runs/tiny-every-other-swap", "--output", "a/all.html"
    )
    assert outcome.err == ""
    read = Reader(Path("a/all.html").read_text())
    assert len(read.named("script")) == 1  # ours: a run's name is none
    assert "1 <script>$a_b$" in read.text
    assert [tag for tag, _ in read.tags].count("h2") == 3
    area = f"{read_json(Path(RUN, 'run.json'))['held_out']['area']:.4f}"
    assert read.text.count(area) >= 2  # alone on its rows, a run's range is the common one
    words = commands(read)[-1]
    assert [words[words.index(flag) + 1] for flag in ("--strategy", "--keep")] == ["every-other", "2"]
    assert "--swap" in words
    assert Path("a/all-overlay.svg").is_file()


DRIVE = """<script>
const points = [...document.querySelectorAll("a.point")], seen = [];
const all = [...document.querySelectorAll(".card")];
const cards = () => all.filter((card) => card.offsetParent).map((card) => card.id);
const look = (what) => seen.push([what, cards().join(), document.activeElement.getAttribute("href")]);
look("start");
points[1].dispatchEvent(new MouseEvent("mouseenter")); look("hover");
points[0].focus();
// A window that the system does not focus, as a headless one may be, moves its focus and tells nobody.
if (!document.hasFocus()) points[0].dispatchEvent(new FocusEvent("focus"));
look("focus");
points[0].dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true })); look("right");
points[2].dispatchEvent(new Event("touchstart")); look("touch");
document.querySelector(".explorer").scrollIntoView();
const hit = points.map((point) => {
  const box = point.querySelector(".dot").getBoundingClientRect();
  const there = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
  return Boolean(there && there.closest("a.point"));
});
const plot = document.querySelector(".explorer > svg").getBoundingClientRect();
const wide = document.documentElement.scrollWidth > document.documentElement.clientWidth;
document.body.textContent = "SEEN" + JSON.stringify({ seen, hit, wide, plot: plot.width }) + "SEEN";
</script></body>"""
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run")
QUIET += ("--disable-background-networking", "--disable-component-update", "--disable-sync")


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
@pytest.mark.parametrize("width", [1200, 500])
def test_points_show_their_cards_by_mouse_keyboard_and_touch(
    ldsearch: Ldsearch, wild_place: Path, width: int
) -> None:
    ldsearch.done("report", RUN)
    page = Path("report.html").read_text()
    Path("driven.html").write_text(page.replace("</body>", DRIVE))
    own = (f"--user-data-dir={wild_place / 'chromium'}", f"--window-size={width},900", "--dump-dom")
    done = subprocess.run(
        [str(CHROMIUM), *QUIET, *own, (wild_place / "driven.html").as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = json.loads(html.unescape(done.stdout.split("SEEN")[1]))
    best = read_json(Path(RUN, "best.json"))["subnet"]
    chosen = [json.loads(text) for text in pd.read_csv(f"{RUN}/frontier.csv")["subnet"]].index(best)
    card = "1-searched-point-{}".format
    assert found["seen"] == [
        ["start", card(chosen), None],
        ["hover", card(1), None],
        ["focus", card(0), f"#{card(0)}"],
        ["right", card(1), f"#{card(1)}"],
        ["touch", card(2), f"#{card(1)}"],
    ]
    assert all(found["hit"])  # nothing lies over a point
    assert not found["wide"]  # nothing is scrolled sideways
    assert found["plot"] > 0.55 * min(width, 1056)


def test_the_command_on_a_card_exports_that_sub_network(ldsearch: Ldsearch, wild_place: Path) -> None:
    ldsearch.done("report", RUN)
    lines = re.findall(r"<dt>export</dt><dd><code>(.*?)</code>", Path("report.html").read_text())
    front = pd.read_csv(f"{RUN}/frontier.csv")["subnet"]
    assert len(lines) == len(front)
    words = shlex.split(html.unescape(lines[0]))
    assert words[:3] == ["ldsearch", "export", RUN]
    assert json.loads(words[words.index("--subnet") + 1]) == json.loads(front[0])
    ldsearch.done(*words[1:])


def test_what_was_measured_beside_a_run_is_shown(ldsearch: Ldsearch, wild_place: Path) -> None:
    identity = read_json(Path(RUN, "run.json"))["identity"]
    full = '"{""encoder"":{""blocks"":[0,1,2]},""version"":1}"'
    for name, tau, fingerprint in (("of-it", 0.75, identity["fingerprint"]), ("other", -0.5, "strange")):
        folder = Path("runs", name)
        folder.mkdir()
        (folder / "run.json").write_text(json.dumps({"identity": {"fingerprint": fingerprint}}))
        taus = dict.fromkeys(("tau", "tau_within", "tau_of_cost", "tau_partial"), tau)
        rows = {"inherited_examples": 77, "fine_tuned_examples": 78, "same_rows": False, "steps": 5}
        fields = {**taus, "p_value": 0.01, "p_value_within": 0.01, **rows}
        (folder / "health.json").write_text(json.dumps(fields))
        table = f"macs_share,bin,inherited,fine_tuned,subnet\n0.5,0,0.6,0.7,{full}\n1,1,0.7,0.8,{full}\n"
        (folder / "health.csv").write_text(table)
    heads = "subnet,runtime,phase,batch,length,median_ms,low_ms,high_ms,ratio,macs_ratio,not_faster,noisy"
    heads += ",full_ms,full_runtime"
    Path(RUN, "latency.csv").write_text(
        f"{heads}\n{full},eager,forward,8,data,12.345,12,13,0.512,0.6,True,False,24.1,own\n"
    )
    ldsearch.done("report", RUN, "--importance", "--subsets", "2")
    read = Reader(Path("report.html").read_text())
    assert "-0.5000" not in read.text
    losses = [f"{loss:.4f}" for loss in pd.read_csv("runs/tiny-importance/importance.csv")["loss"]]
    latency = ("8 x data", "12.35", "0.512", "not faster", "How it was measured is not recorded")
    for text in ("0.7500", "better than chance", "78 others", *latency, *losses):
        assert text in read.text, text


def study(tau: float | None, p_value: float | None, count: int = 32) -> Study:
    fields = {"tau_within": tau, "p_value_within": p_value}
    return Study(Path(), "health", fields, pd.DataFrame({"inherited": range(count)}))


def test_verdicts() -> None:
    said = {"better than chance": (0.9, 0.01), "no better than": (0.9, 0.2), "wrong way": (-0.9, 0.01)}
    for words, values in {**said, "none": (None, None)}.items():
        assert words in verdict(study(*values))
    assert "30 or more" in verdict(study(0.9, 0.2, count=8))
    assert "30 or more" not in verdict(study(0.9, 0.2, count=30))


def test_what_is_gone_is_said(ldsearch: Ldsearch, wild_place: Path) -> None:
    def page() -> Reader:
        ldsearch.done("report", RUN)
        read = Reader(Path("report.html").read_text())
        assert [words[1] for words in commands(read)] == ["evolve"]
        assert "the command that trained the supernet is not recorded" in read.text
        return read

    training = Path("runs/tiny/training.json")
    training.write_text(json.dumps({"identity": read_json(training)["identity"]}))  # without options
    page()
    shutil.rmtree("runs/tiny")
    assert "The supernet is not at runs/tiny any more" in page().text
