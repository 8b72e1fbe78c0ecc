"use strict";

// Draws the charts of an ampkit report. The data, thinned already, is in the
// element #chart-data; see chart_data.h for what the names mean.
(() => {
  const data = JSON.parse(document.getElementById("chart-data").textContent);
  const rounded = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 5 });
  const exact = new Intl.NumberFormat("en-US");
  const charts = [];

  const color = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const show = (value) =>
    (Number.isInteger(value) ? exact : rounded).format(value);

  const pairs = ({ x, y }) => x.map((step, i) => ({ x: step, y: y[i] }));

  // Tells screen readers and tests that a chart is there.
  const markDrawn = {
    id: "markDrawn",
    afterRender: (chart) => {
      chart.canvas.closest("figure").dataset.drawn = "true";
    },
  };

  function curveSet(curve) {
    return {
      label: curve.label,
      style: curve.style,
      colorName: curve.style === "faint" ? "--curve-1-faint"
        : curve.style !== "points" ? "--curve-1"
        : curve.label.includes("averaged") ? "--curve-3" : "--curve-2",
      data: pairs(curve),
      borderWidth: curve.style === "faint" ? 1 : 2,
      pointRadius: curve.style === "points" || curve.x.length === 1 ? 3 : 0,
      pointHitRadius: 6,
      stepped: curve.style === "steps" ? "before" : false,
      clip: 8, // a dot on the edge is whole
      order: curve.style === "points" ? 1 : curve.style === "faint" ? 3 : 2,
    };
  }

  function markSet(marks) {
    return {
      label: marks.label,
      colorName: "--mark",
      data: pairs(marks),
      showLine: false,
      pointStyle: "triangle",
      rotation: 180,
      pointRadius: 5,
      pointHitRadius: 6,
      clip: 8,
      order: 0,
    };
  }

  function paint(chart) {
    for (const set of chart.data.datasets) {
      set.borderColor = set.backgroundColor = color(set.colorName);
    }
    const { scales, plugins } = chart.options;
    for (const axis of [scales.x, scales.y]) {
      axis.ticks.color = color("--quiet");
      axis.grid.color = color("--grid");
      axis.grid.borderColor = color("--line");
      axis.title.color = color("--quiet");
    }
    plugins.legend.labels.color = color("--text");
  }

  // The charts share their steps, so that what happened together stands in
  // line.
  const steps = data.flatMap(({ curves }) => curves.flatMap(({ x }) => x));
  const lastStep = steps.reduce((a, b) => Math.max(a, b), 1);
  const firstStep = steps.reduce((a, b) => Math.min(a, b), lastStep);

  function axis(options) {
    return {
      grid: {},
      title: { display: false },
      ...options,
      ticks: {
        maxTicksLimit: 7,
        maxRotation: 0,
        callback: (value) => show(value),
        ...options.ticks,
      },
    };
  }

  const stepAxis = () => axis({
    type: "linear",
    // A run that begins near 0 has round numbers on its axis.
    min: firstStep < 0.1 * lastStep ? 0 : firstStep,
    max: Math.max(lastStep, firstStep + 1),
    title: { display: true, text: "step", padding: 0 },
    ticks: { includeBounds: false },
  });

  function valueAxis(values) {
    const low = Math.min(...values);
    const high = Math.max(...values);
    const nearZero = low >= 0 && low < 0.3 * high;
    return axis({ type: "linear", grace: "5%", min: nearZero ? 0 : undefined });
  }

  // Ticks at powers of `base`; Chart.js would label 70,000 and 40,000.
  function powerAxis(values, base) {
    const positive = values.filter((value) => value > 0);
    const exponent = (value) => Math.log(value) / Math.log(base);
    const low = Math.floor(exponent(Math.min(...positive)) - 1e-9);
    const high = Math.ceil(exponent(Math.max(...positive)) + 1e-9);
    const stride = Math.ceil((high - low) / 7);
    return axis({
      type: "logarithmic",
      min: base ** low,
      max: base ** high,
      afterBuildTicks: (built) => {
        built.ticks = [];
        for (let power = low; power <= high; power += stride) {
          built.ticks.push({ value: base ** power });
        }
      },
    });
  }

  const inLegend = (item, { datasets }) =>
    datasets.length > 1 && datasets[item.datasetIndex].style !== "faint";

  function makeChart(spec) {
    const canvas = document.querySelector(`#${spec.id} canvas`);
    const suffix = spec.unit === "" ? "" : ` ${spec.unit}`;
    const values = [...spec.curves, ...spec.marks]
      .flatMap(({ y }) => y).filter((value) => value !== null);
    const y = spec.logBase > 0 ? powerAxis(values, spec.logBase)
      : valueAxis(values);
    const chart = new Chart(canvas, {
      type: "line",
      data: {
        datasets: [...spec.curves.map(curveSet), ...spec.marks.map(markSet)],
      },
      options: {
        animation: false,
        parsing: false,
        normalized: true,
        maintainAspectRatio: false,
        interaction: { mode: "nearest", axis: "x", intersect: false },
        scales: { x: stepAxis(), y },
        plugins: {
          legend: {
            align: "end",
            labels: { usePointStyle: true, boxHeight: 6, filter: inLegend },
          },
          tooltip: {
            callbacks: {
              title: (items) =>
                items.length ? `Step ${show(items[0].parsed.x)}` : "",
              label: ({ dataset, parsed }) =>
                `${dataset.label}: ${show(parsed.y)}${suffix}`,
            },
          },
        },
      },
      plugins: [markDrawn],
    });
    paint(chart);
    chart.update();
    readWithKeys(chart, suffix);
    charts.push(chart);
  }

  // Arrow keys move along the last curve and speak its values.
  function readWithKeys(chart, suffix) {
    const plot = chart.canvas.parentElement;
    const reader = plot.parentElement.querySelector(".reader");
    const datasetIndex = chart.data.datasets.findLastIndex(
      (set) => set.showLine !== false);
    const { data: points, label } = chart.data.datasets[datasetIndex];
    let at = -1;
    const moves = {
      ArrowRight: () => at + 1,
      ArrowLeft: () => at - 1,
      Home: () => 0,
      End: () => points.length - 1,
    };
    plot.addEventListener("keydown", (event) => {
      const move = moves[event.key];
      if (!move) {
        return;
      }
      event.preventDefault();
      at = Math.min(Math.max(move(), 0), points.length - 1);
      const { x, y } = points[at];
      const value = y === null ? "not finite" : show(y) + suffix;
      reader.textContent = `Step ${show(x)}: ${label} ${value}`;
      chart.tooltip.setActiveElements([{ datasetIndex, index: at }],
        { x: 0, y: 0 });
      chart.setActiveElements([{ datasetIndex, index: at }]);
      chart.update();
    });
    plot.addEventListener("blur", () => {
      reader.textContent = "";
      chart.tooltip.setActiveElements([], { x: 0, y: 0 });
      chart.setActiveElements([]);
      chart.update();
    });
  }

  function repaint() {
    for (const chart of charts) {
      paint(chart);
      chart.update();
    }
  }

  // On paper a chart is about this wide, at more dots an inch than a screen, and
  // in the light colours: the style for print does not hold yet.
  function fitPaper() {
    document.documentElement.classList.add("paper");
    for (const chart of charts) {
      chart.options.devicePixelRatio = 3;
      chart.resize(360, 220);
    }
    repaint();
  }

  function fitScreen() {
    document.documentElement.classList.remove("paper");
    for (const chart of charts) {
      chart.options.devicePixelRatio = undefined;
      chart.resize();
    }
    repaint();
  }

  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  data.forEach(makeChart);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  addEventListener("beforeprint", fitPaper);
  addEventListener("afterprint", fitScreen);
})();
