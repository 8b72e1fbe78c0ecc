"""The report of a run, looked at in a headless browser without network."""

import json
import re

import pytest

from browser import Page
from synthetic_run import metrics, write_run

CHARTS = {
    "loss",
    "accuracy",
    "scale",
    "grad-norm",
    "learning-rate",
    "throughput",
    "memory",
    "nan-rate",
}

# For each chart: whether it says that it is drawn, and how many of its pixels
# are neither clear nor white.
DRAWN = """
[...document.querySelectorAll("figure")].map(figure => {
  const canvas = figure.querySelector("canvas");
  const {data} = canvas.getContext("2d")
    .getImageData(0, 0, canvas.width, canvas.height);
  let inked = 0;
  for (let i = 0; i < data.length; i += 4) {
    inked += data[i + 3] > 0 && data[i] + data[i + 1] + data[i + 2] < 720;
  }
  return [figure.id, figure.dataset.drawn === "true", inked];
})
"""


@pytest.fixture(scope="module")
def program(build):
    return build / "apps" / "ampkit" / "ampkit"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with Page(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture(scope="module")
def report(program, run, tmp_path_factory):
    """The report of a run that learns, skips steps and evaluates."""
    folder = write_run(tmp_path_factory.mktemp("runs") / "fashion")
    done = run([program, "report", folder])
    assert done.stdout == f"{folder / 'report.html'}\n"
    return folder / "report.html"


def assert_drawn(page, ids):
    charts = page.value(DRAWN)
    assert {name for name, _, _ in charts} == ids
    for name, drawn, inked in charts:
        assert drawn, f"{name} is not drawn"
        assert inked > 500, f"{name} is blank: {inked} pixels"


def assert_fits(page, width):
    size = page.value("[document.documentElement.scrollWidth, innerWidth]")
    assert size == [width, width]


def test_every_chart_is_drawn_without_errors_or_network(page, report):
    page.open(report)
    assert_drawn(page, CHARTS)
    assert page.errors == []
    assert page.requests == [report.resolve().as_uri()]
    addresses = re.findall(r"""(?:src|href)\s*=\s*["']?\s*(\S+)""", report.read_text())
    assert not [a for a in addresses if "//" in a]


def test_page_cannot_load_anything(page, report):
    page.open(report)
    blocked = page.value(
        "fetch('https://example.org/').then(() => 'loaded', () => 'blocked')"
    )
    assert blocked == "blocked"
    policy = [entry for entry in page.errors if "Content Security Policy" in str(entry)]
    assert policy, "the policy did not refuse it"


@pytest.mark.parametrize("dark", [False, True])
def test_phone_needs_no_sideways_scrolling(page, report, dark):
    page.open(report, width=390, height=844, dark=dark, phone=True)
    assert_fits(page, 390)
    assert page.value("document.querySelector('figure').clientWidth") > 300
    if not dark:  # the pixel test knows dark ink on white only
        assert_drawn(page, CHARTS)
    assert page.errors == []


def test_dark_mode_redraws_in_light_ink(page, report):
    page.open(report)
    light = page.value("document.querySelector('#loss canvas').toDataURL()")
    page.open(report, dark=True)
    assert page.value("getComputedStyle(document.body).backgroundColor") == (
        "rgb(18, 22, 28)"
    )
    assert page.value("document.querySelector('#loss canvas').toDataURL()") != light


def test_print_is_a_few_pages(page, report, tmp_path):
    page.open(report)
    page.pdf(tmp_path / "report.pdf")
    pdf = (tmp_path / "report.pdf").read_bytes()
    assert pdf.startswith(b"%PDF")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 5


def test_charts_are_drawn_for_paper_in_light_colours(page, report):
    canvas = "document.querySelector('#loss canvas')"
    prints = []
    for dark in (False, True):
        page.open(report, dark=dark)
        screen = page.value(f"{canvas}.width")
        page.value("dispatchEvent(new Event('beforeprint'))")
        assert page.value(f"{canvas}.width") == 3 * 360
        prints.append(page.value(f"{canvas}.toDataURL()"))
        page.value("dispatchEvent(new Event('afterprint'))")
        assert page.value(f"{canvas}.width") == screen
    assert prints[0] == prints[1]


def test_each_chart_has_a_text_for_screen_readers(page, report):
    page.open(report)
    texts = page.value(
        """[...document.querySelectorAll("canvas[role=img]")].map(canvas =>
          [canvas.getAttribute("aria-label"), document.getElementById(
            canvas.getAttribute("aria-describedby")).textContent])"""
    )
    assert len(texts) == len(CHARTS)
    for label, text in texts:
        assert label and len(text) > 30
    rows = metrics()
    skipped = sum(row["kind"] == "train" and row["skipped"] for row in rows)
    assert f"{skipped} of 1,170 steps skipped" in dict(texts)[
        "Loss scale and skipped steps"
    ]


def test_arrow_keys_read_the_values(page, report):
    page.open(report)
    page.value("document.querySelector('#accuracy .plot').focus()")
    reader = "document.querySelector('#accuracy .reader').textContent"
    page.press("ArrowRight")
    first = [row for row in metrics() if row["kind"] == "eval"][0]
    assert page.value(reader).startswith(f"Step {first['step']}: Evaluation ")
    page.press("End")
    assert page.value(reader).startswith("Step 1,170: Evaluation 92.2")
    page.press("ArrowRight")
    assert page.value(reader).startswith("Step 1,170:"), "went over the end"


def test_skipped_steps_are_marked(page, report):
    page.open(report)
    data = json.loads(page.value("document.getElementById('chart-data').textContent"))
    scale = next(chart for chart in data if chart["id"] == "scale")
    expected = [row["step"] for row in metrics() if row.get("skipped")]
    assert [mark["x"] for mark in scale["marks"]] == [expected]


def test_results_and_files_are_shown(page, report):
    page.open(report)
    text = page.value("document.body.innerText")
    for expected in ("92.21 %", "fp16-mixed", "Example 9000", "resnet_small", "1,170"):
        assert expected in text


def test_hostile_names_are_shown_as_text(page, program, run, tmp_path):
    name = "<script>alert(1)<"
    config = f"[model]\nname = '</td><script>document.title = 1</script>'\n"
    folder = write_run(
        tmp_path / name,
        rows=metrics(40, 2),
        config=config,
        machine={"processor": "<img src=x onerror=document.title=2>"},
    )
    run([program, "report", folder, "--output", tmp_path / "out.html"])
    page.open(tmp_path / "out.html")
    assert page.value("document.title") == f"{name} · ampkit report"
    assert page.value("document.querySelector('h1').innerText").startswith(name)
    assert page.value("document.querySelectorAll('img').length") == 0
    assert page.requests == [(tmp_path / "out.html").as_uri()]
    assert page.errors == []


def test_numbers_that_are_not_finite_and_torn_lines(page, program, run, tmp_path):
    rows = metrics(300, 3)
    for row in rows[100:150]:
        row["loss"] = "NaN"
    rows[60]["loss"] = "-Infinity"
    tail = '{"kind": "train", "step": 301, "lo'
    folder = write_run(tmp_path / "run", rows=rows, tail=tail)
    (folder / "machine.json").unlink()
    run([program, "report", folder])
    page.open(folder / "report.html")
    assert_drawn(page, CHARTS)
    assert page.errors == []
    text = page.value("document.body.innerText")
    assert "1 line of metrics.jsonl could not be read" in text
    assert "The run has no machine.json." in text
    odd = sum(
        row["kind"] == "train" and isinstance(row["loss"], str) for row in rows
    )
    assert f"Not finite at {odd} steps" in text


def test_one_step_is_enough(page, program, run, tmp_path):
    folder = write_run(tmp_path / "run", rows=metrics(300)[:1])
    run([program, "report", folder])
    page.open(folder / "report.html")
    assert page.errors == []
    assert page.value("document.querySelectorAll('figure').length") > 0


def test_long_run_stays_small_and_keeps_its_spike(page, program, run, tmp_path):
    rows = metrics(60000, 20)
    rows[34567]["grad_norm"] = 4321.0
    folder = write_run(tmp_path / "run", rows=rows)
    run([program, "report", folder])
    assert (folder / "report.html").stat().st_size < 1_000_000
    page.open(folder / "report.html")
    assert_drawn(page, CHARTS)
    data = json.loads(page.value("document.getElementById('chart-data').textContent"))
    norm = next(chart for chart in data if chart["id"] == "grad-norm")
    assert 4321 in norm["curves"][0]["y"]


def test_errors_name_the_file(program, run, tmp_path):
    done = run([program, "report", tmp_path / "nowhere"], status=2)
    assert "nowhere" in done.stdout
    done = run([program, "report", tmp_path], status=2)
    assert str(tmp_path / "metrics.jsonl") in done.stdout
    (tmp_path / "metrics.jsonl").write_text("")
    done = run([program, "report", tmp_path], status=1)
    assert f"{tmp_path / 'metrics.jsonl'} holds no record of a step" in done.stdout
    assert not (tmp_path / "report.html").exists()
    folder = write_run(tmp_path / "run", rows=metrics(10, 1))
    output = tmp_path / "no" / "out.html"
    done = run([program, "report", folder, "--output", output], status=1)
    assert f"cannot write {output}" in done.stdout
