// The report's own script: charts, and the table's search, filters and sorting. Every text of the plan goes through
// textContent or Plot's text marks; nothing of it is ever parsed as markup.
(async () => {
  "use strict";
  const el = (id) => document.getElementById(id);
  const root = document.documentElement;
  const data = await unpack("chart-data");
  const KINDS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c8c3a", "#7a5195", "#6b7686", "#b07d4f", "#2f8f9d", "#c05a5a", "#4d6a2f", "#9aa5b5", "#5b5bb5"];
  const money = (usd) => `${data.currency === "USD" ? "$" : `${data.currency} `}${number(usd * data.perUsd)}`;
  root.classList.add("has-script");

  function number(value) {
    if (value === 0) return "0";
    return Math.abs(value) < 0.001 ? value.toExponential(1) : value.toLocaleString("en", { maximumSignificantDigits: 3 });
  }
  function duration(seconds) {
    for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) if (seconds >= 2 * size) return `${number(seconds / size)} ${unit}`;
    return `${number(seconds)} s`;
  }
  function prefixed(value, unit) {
    for (const [size, prefix] of [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) if (value >= size) return `${number(value / size)} ${prefix}${unit}`;
    return `${number(value)} ${unit}`;
  }
  // Round times between the ends of a logarithmic axis, as many as have room; amounts: 1, 10, 100.
  const UNITS = [[1, "s"], [60, "min"], [3600, "h"], [86400, "d"]];
  const TIMES = UNITS.flatMap(([size, unit]) => ({ s: [1, 2, 5, 10, 20], min: [0.5, 1, 2, 5, 10, 20, 30], h: [1, 2, 5, 10], d: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] })[unit].map((n) => n * size));
  const POWERS = d3.range(-6, 8).map((power) => 10 ** power);
  const between = (ticks, [low, high]) => ticks.filter((tick) => tick >= low && tick <= high);
  function tickText(seconds) {
    const [size, unit] = UNITS.findLast(([size]) => seconds >= size) ?? UNITS[0];
    return `${number(seconds / size)} ${unit}`;
  }
  function spaced(ticks, [low, high], room) {
    const kept = [], apart = (48 / room) * Math.log(high / low);
    for (const tick of between(ticks, [low, high])) if (!kept.length || Math.log(tick / kept.at(-1)) >= apart) kept.push(tick);
    return kept;
  }
  async function unpack(id) {
    const bytes = Uint8Array.from(atob(el(id).textContent), (c) => c.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
  }
  // --- charts -------------------------------------------------------------------------------------------------
  const width = (box) => Math.max(300, box.clientWidth);
  const tip = { fill: "var(--paper)", stroke: "var(--soft)", textPadding: 8, lineHeight: 1.35 };
  function put(id, make) {
    const box = el(id);
    if (!box) return;
    const chart = make(width(box), width(box) < 560);
    for (const svg of chart.matches("svg") ? [chart] : chart.querySelectorAll("svg")) svg.setAttribute("aria-hidden", "true");
    box.replaceChildren(chart);
  }
  const apart = (points, ratio) => points.filter((p, i) => points.slice(0, i).every((q) => Math.abs(Math.log(p.y / q.y)) > ratio));
  // Money against time: the offers of the decision are named and have their ranges, the others are grey.
  const COLOURS = { take: "var(--accent)", free: "#0a8f68", cheaper: "#0072b2", faster: "#a0569c" };
  const isPicked = (p) => p.mark in COLOURS;
  function costTime(w, small) {
    const paid = data.points.flatMap((p) => p.cost).filter((usd) => usd > 0);
    const floor = (paid.length ? d3.min(paid) : 1) / 2, y = (usd) => Math.max(usd, floor);
    const picks = data.points.filter(isPicked);
    const farthest = picks.length ? 20 * d3.max(picks, (p) => p.time[1]) : Infinity, rest = data.points.filter((p) => !isPicked(p) && p.time[1] <= farthest);
    const times = [...rest.map((p) => p.time[1]), ...picks.flatMap((p) => p.time)], highest = Math.max(...rest.map((p) => y(p.cost[1])), ...picks.map((p) => y(p.cost[2])));
    const sides = { marginLeft: small ? 52 : 64, marginRight: 24, marginTop: 28, marginBottom: 44 }, height = small ? 360 : 430;
    const xs = [d3.min(times) / 1.3, 1.3 * d3.max(times)], ys = [floor / 1.5, 1.5 * highest];
    const at = { x: (p) => p.time[1], y: (p) => y(p.cost[1]) }, colour = (p) => COLOURS[p.mark] ?? "var(--soft)";
    const free = data.points.some((p) => p.cost[1] === 0) ? [floor] : [];
    const across = spaced(TIMES, xs, w - 90), upwards = [...free, ...between(POWERS.flatMap((n) => [n, 3 * n]), [2 * floor, ys[1]])];
    const draw = (labels) => Plot.plot({
      width: w, height, ...sides,
      x: { type: "log", domain: xs, axis: null }, y: { type: "log", domain: ys, axis: null },
      marks: [
        Plot.gridX(across), Plot.axisX(across, { text: tickText, label: "time of the whole run →" }),
        Plot.gridY(upwards), Plot.axisY(upwards, { text: (usd) => (usd === floor ? "free" : money(usd)), label: `↑ cost of the whole run [${data.currency}]` }),
        Plot.dot(rest, { ...at, r: 2.5, fill: "var(--soft)", fillOpacity: 0.55 }),
        Plot.ruleY(picks, { y: at.y, x1: (p) => p.time[0], x2: (p) => p.time[2], stroke: colour, strokeWidth: 2.5, strokeOpacity: 0.75 }),
        Plot.ruleX(picks, { x: at.x, y1: (p) => y(p.cost[0]), y2: (p) => y(p.cost[2]), stroke: colour, strokeWidth: 2.5, strokeOpacity: 0.75 }),
        Plot.dot(picks, { ...at, r: 6, fill: colour, stroke: "var(--paper)", strokeWidth: 1.5 }),
        ...labels,
        Plot.tip([...rest, ...picks], Plot.pointer({ ...at, title: "text", ...tip })),
      ],
    });
    const plain = draw([]), [ofTime, ofCost] = [plain.scale("x"), plain.scale("y")];
    const places = placed(picks, (time, usd) => [ofTime.apply(time), ofCost.apply(y(usd))], { w, height, small, ...sides });
    return draw(picks.flatMap((p, i) => [
      Plot.link([p], { x1: at.x, y1: at.y, x2: ofTime.invert(places[i].from[0]), y2: ofCost.invert(places[i].from[1]), stroke: colour, strokeOpacity: 0.6 }),
      Plot.text([p], { ...at, text: () => places[i].text, dx: places[i].dx, dy: places[i].dy, textAnchor: "start", lineAnchor: "top", lineHeight: 1.25, fontWeight: 600, fill: "currentColor", stroke: "var(--paper)", strokeWidth: 5 }),
    ]));
  }
  // Labels beside their points, each where it meets no other label and no edge, and no range if there is room.
  function placed(points, spot, box) {
    const labels = [], ranges = points.flatMap(({ time, cost }) => {
      const [x, y] = spot(time[1], cost[1]), [left, top] = spot(time[0], cost[2]), [right, bottom] = spot(time[2], cost[0]);
      return [[left, y - 8, right, y + 8], [x - 8, top, x + 8, bottom]];
    });
    const meets = (a, others) => others.some((b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3]);
    const outside = (a) => a[0] < box.marginLeft || a[2] > box.w - 4 || a[1] < 4 || a[3] > box.height - box.marginBottom;
    return points.map((p) => {
      const [x, y] = spot(p.time[1], p.cost[1]), lines = [box.small ? p.mark : `${p.mark}: ${p.machine}`, p.short], width = 7.8 * Math.max(...lines.map((line) => line.length)), tall = 40; // two lines are 39 high
      const tried = [14, 40, 66, 92, 118].flatMap((off) => [-off - tall, off].flatMap((dy) => [-width / 2, 10, -width - 10, box.marginLeft + 4 - x, box.w - 6 - width - x].map((dx) => ({ dx, dy }))));
      const areaOf = ({ dx, dy }) => [x + dx, y + dy, x + dx + width, y + dy + tall];
      const inside = tried.filter((one) => !meets(areaOf(one), labels) && !outside(areaOf(one)));
      const found = inside.find((one) => !meets(areaOf(one), ranges)) ?? inside[0] ?? tried[0], area = areaOf(found);
      labels.push(area);
      const from = [Math.min(Math.max(x, area[0]), area[2]), found.dy < 0 ? area[3] : area[1]];
      return { ...found, text: lines.join("\n"), from };
    });
  }
  function kinds(w, small) {
    const rows = data.steps.flatMap((s) => s.kinds.map((k) => ({ chip: s.accelerator, kind: k.name, ms: 1e3 * k.time_s, share: (100 * k.time_s) / s.step_s })));
    const names = [...new Set(rows.map((r) => r.kind))], domain = data.steps.map((s) => s.accelerator);
    const stacked = { x: "share", y: "chip", z: "kind", order: names };
    return Plot.plot({
      width: w, marginLeft: small ? 92 : 120, marginRight: 74, height: 60 + 34 * domain.length,
      x: { label: "share of the step [%] →", grid: true, domain: [0, 100] }, y: { domain, label: null },
      color: { domain: names, range: names.map((_, i) => KINDS[i % KINDS.length]), legend: true },
      marks: [
        Plot.barX(rows, { ...stacked, fill: "kind", stroke: "var(--paper)", insetTop: 3, insetBottom: 3, tip, title: (r) => `${r.chip}: ${r.kind}\n${number(r.ms)} ms, ${r.share.toFixed(1)} %` }),
        Plot.text(rows, Plot.stackX({ ...stacked, text: (r) => (r.share > (small ? 38 : 11) ? r.kind : ""), fill: "#fff", stroke: "#000", strokeOpacity: 0.45, strokeWidth: 3 })),
        Plot.text(data.steps, { x: 100, y: "accelerator", text: (s) => `${number(1e3 * s.step_s)} ms`, textAnchor: "start", dx: 6 }),
      ],
    });
  }
  function layers(w, small) {
    const step = data.steps[Number(el("chip").value)];
    const rows = step.layers.filter((layer) => layer.name !== "other layers"), longest = small ? 18 : 40, cut = (name) => (name.length > longest ? `…${name.slice(1 - longest)}` : name);
    return Plot.plot({
      width: w, marginLeft: small ? 128 : 270, marginRight: 56, height: 50 + 19 * rows.length,
      x: { label: "time of a step [ms] →", grid: true }, y: { domain: rows.map((r) => r.name), tickFormat: cut, label: null },
      marks: [
        Plot.barX(rows, { x: (r) => 1e3 * r.time_s, y: "name", fill: "#0072b2", insetTop: 2, insetBottom: 2, tip, title: (r) => `${r.name}\n${number(1e3 * r.time_s)} ms, ${((100 * r.time_s) / step.step_s).toFixed(1)} %` }),
        Plot.text(rows, { x: (r) => 1e3 * r.time_s, y: "name", text: (r) => `${((100 * r.time_s) / step.step_s).toFixed(1)} %`, textAnchor: "start", dx: 4 }),
      ],
    });
  }
  function roofline(w, small) {
    const chosen = data.steps[Number(el("chip").value)];
    const whole = data.steps.map((s) => {
      const flops = d3.sum(s.kinds, (k) => k.flops), moved = d3.sum(s.kinds, (k) => k.bytes_moved);
      return { name: s.accelerator, x: flops / moved, y: flops / s.step_s };
    }).filter((p) => p.x > 0 && p.y > 0);
    const parts = chosen.kinds.filter((k) => k.flops > 0 && k.bytes_moved > 0 && k.time_s > 0)
      .map((k) => ({ name: k.name, x: k.flops / k.bytes_moved, y: k.flops / k.time_s }));
    const xs = [...whole, ...parts].map((p) => p.x), ridges = data.steps.map((s) => s.peak_flop_per_s / s.memory_bytes_per_s);
    const from = Math.min(...xs, ...ridges) / 3, to = Math.max(...xs, ...ridges) * 3;
    const roofs = data.steps.flatMap((s, i) => [from, ridges[i], to].map((x) => ({ name: s.accelerator, x, y: Math.min(s.peak_flop_per_s, x * s.memory_bytes_per_s) })));
    const title = (p) => `${p.name}\n${prefixed(p.y, "FLOP/s")} at ${number(p.x)} FLOP/B`;
    const range = data.steps.map((_, i) => KINDS[i % KINDS.length]);
    return Plot.plot({
      width: w, height: small ? 360 : 440, marginLeft: 78, marginRight: 30, marginBottom: 44,
      x: { type: "log", label: "FLOP per byte of memory traffic →", grid: true, ticks: small ? 4 : 8, tickFormat: number },
      y: { type: "log", label: "↑ FLOP/s", grid: true, tickFormat: (v) => prefixed(v, ""), ticks: 6 },
      color: { domain: data.steps.map((s) => s.accelerator), range, legend: true },
      marks: [
        Plot.line(roofs, { x: "x", y: "y", stroke: "name", z: "name", strokeWidth: 2 }),
        Plot.dot(parts, { x: "x", y: "y", r: 3.5, stroke: "currentColor", symbol: "diamond" }),
        Plot.text(parts, { x: "x", y: "y", text: "name", dy: 12, fill: "var(--soft)", stroke: "var(--paper)", strokeWidth: 3 }),
        Plot.dot(whole, { x: "x", y: "y", r: 6, fill: "name", stroke: "var(--paper)" }),
        Plot.text(apart(whole, small ? 0.7 : 0.35), { x: "x", y: "y", text: "name", dx: 10, textAnchor: "start", fill: "currentColor", stroke: "var(--paper)", strokeWidth: 4, fontWeight: 600 }),
        Plot.tip([...whole, ...parts], Plot.pointer({ x: "x", y: "y", title, ...tip })),
      ],
    });
  }
  function memory(w, small) {
    const need = d3.sum(data.memory, (p) => p.gib);
    const near = d3.groups(data.capacity, (c) => c.gib.toFixed(1)).map(([, same]) => ({ gib: same[0].gib, names: same.map((c) => c.name).join(", ") })).sort((a, b) => a.gib - b.gib);
    const domain = near.map((c) => c.names), cut = (name) => (name.length > (small ? 16 : 30) ? `${name.slice(0, small ? 15 : 29)}…` : name);
    const rows = domain.flatMap((chip) => data.memory.map((p) => ({ chip, ...p })));
    return Plot.plot({
      width: w, marginLeft: small ? 118 : 230, marginRight: 60, height: 60 + 22 * domain.length,
      x: { label: "GiB →", grid: true }, y: { domain, tickFormat: cut, label: null },
      color: { domain: data.memory.map((p) => p.name), range: KINDS, legend: true },
      marks: [
        Plot.barX(near, { x: "gib", y: "names", fill: "var(--line)", insetTop: 2, insetBottom: 2, opacity: 0.7 }),
        Plot.barX(rows, { x: "gib", y: "chip", fill: "name", insetTop: 5, insetBottom: 5, order: data.memory.map((p) => p.name), tip, title: (r) => `${r.name}: ${number(r.gib)} GiB\n${r.chip}` }),
        Plot.tickX(near, { x: "gib", y: "names", stroke: "currentColor", strokeWidth: 2 }),
        Plot.text(near, { x: (c) => Math.max(c.gib, need), y: "names", text: (c) => (c.gib >= need ? `${number(c.gib)}` : "too small"), textAnchor: "start", dx: 5 }),
      ],
    });
  }
  function epochs(w, small) {
    const rows = data.epochs.flatMap((way) => way.points.map((p) => ({ way: way.name, ...p })));
    const least = Math.min(...rows.map((r) => r.usd).filter((usd) => usd > 0), 1);
    const last = data.epochs.map((way) => ({ way: way.name, ...way.points[way.points.length - 1] }));
    const range = data.epochs.map((_, i) => KINDS[i % KINDS.length]);
    return Plot.plot({
      width: w, height: small ? 340 : 400, marginLeft: 64, marginRight: small ? 20 : 190, marginTop: 28, marginBottom: 44,
      x: { type: "log", label: "epochs →", grid: true, tickFormat: number, ticks: small ? 4 : 8 },
      y: { type: "symlog", constant: least * data.perUsd, label: `↑ cost of a run [${data.currency}]`, grid: true, tickFormat: number, ticks: [0, ...between(POWERS, [least * data.perUsd, data.perUsd * d3.max(rows, (r) => r.usd_high)])], transform: (usd) => usd * data.perUsd },
      color: { domain: data.epochs.map((e) => e.name), range, legend: true },
      marks: [
        Plot.areaY(rows, { x: "epochs", y1: "usd_low", y2: "usd_high", fill: "way", fillOpacity: 0.1 }),
        Plot.line(rows, { x: "epochs", y: "usd", stroke: "way", strokeWidth: 2, marker: "dot" }),
        Plot.ruleX(data.asked ? [data.asked] : [], { stroke: "currentColor", strokeDasharray: "2 3" }),
        Plot.text(data.asked ? [data.asked] : [], { x: (n) => n, frameAnchor: "top", dy: -12, text: (n) => `asked: ${n}` }),
        Plot.ruleX(data.turns, { x: "from", stroke: "var(--accent)", strokeWidth: 1.5 }),
        Plot.text(small ? [] : last.filter((p) => p.usd > 0), { x: "epochs", y: "usd", text: "way", textAnchor: "start", dx: 7 }),
        Plot.text([last.filter((p) => p.usd === 0)].filter((free) => free.length), { x: (free) => free[0].epochs, y: 0, text: (free) => free.map((p) => p.way).join(", "), textAnchor: "end", dy: -10 }),
        Plot.tip(rows, Plot.pointer({ x: "epochs", y: "usd", title: (r) => `${r.way}, ${r.epochs} epochs\n${money(r.usd)} (${money(r.usd_low)} – ${money(r.usd_high)})`, ...tip })),
      ],
    });
  }
  // A chart in a folded part is drawn when it is opened.
  function draw(within = document) {
    const charts = [
      ["cost-time", data.points, costTime], ["kinds", data.steps, kinds], ["layers", data.steps, layers],
      ["roofline", data.steps, roofline], ["memory", data.capacity, memory], ["epochs", data.epochs, epochs],
    ];
    for (const [name, told, make] of charts) {
      const box = el(`chart-${name}`);
      if (told.length && within.contains(box) && !box.closest("details:not([open])")) put(box.id, make);
    }
  }
  let drawnAt = 0;
  const redraw = () => { if (root.clientWidth !== drawnAt) { drawnAt = root.clientWidth; draw(); } };
  addEventListener("resize", () => requestAnimationFrame(redraw));
  redraw();
  for (const fold of document.querySelectorAll("details.fold")) fold.addEventListener("toggle", () => fold.open && draw(fold));
  el("chip")?.addEventListener("change", () => draw());

  // Arrow keys walk along the points by time; what one is, is said below the chart.
  const walked = [...data.points].sort((a, b) => a.time[1] - b.time[1]);
  let at = -1;
  el("chart-cost-time").addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by || !walked.length) return;
    event.preventDefault();
    at = Math.min(Math.max(at + by, 0), walked.length - 1);
    el("read-cost-time").textContent = walked[at].text.replaceAll("\n", " · ");
  });

  // --- table --------------------------------------------------------------------------------------------------
  const body = document.querySelector("#table tbody"), heads = [...document.querySelectorAll("#table thead th")];
  const PAGE = 250, place = (name) => heads.findIndex((head) => head.dataset.column === name);
  const PURCHASE = place("purchase"), RUN = place("run_time_s");
  const all = await unpack("rows-data"), offered = data.first.map((offer) => all[offer]), SHOWN = body.rows.length;
  let rows = offered, sortedBy = -1, falling = false, room = SHOWN;
  function cellsOf(row) {
    const tr = document.createElement("tr");
    heads.forEach((head, i) => {
      const td = tr.insertCell();
      td.textContent = row[i][0];
      if ("numeric" in head.dataset) td.className = "n";
    });
    return tr;
  }
  function compare(a, b) {
    const [x, y] = [a[sortedBy], b[sortedBy]], numeric = "numeric" in heads[sortedBy].dataset;
    if (numeric && (x[1] == null || y[1] == null)) return (x[1] == null) - (y[1] == null);  // what is not known comes last
    const order = numeric ? x[1] - y[1] : x[0].localeCompare(y[0], "en", { numeric: true });
    return falling ? -order : order;
  }
  function show() {
    const words = el("find").value.toLowerCase().split(/\s+/).filter(Boolean), purchase = el("purchase").value;
    const kept = rows.filter((row) => {
      const text = row.map((cell) => cell[0]).join(" ").toLowerCase();
      return words.every((word) => text.includes(word)) && (!purchase || row[PURCHASE][0] === purchase) && !(el("fits").checked && row[RUN][0] === "does not fit");
    });
    if (sortedBy >= 0) kept.sort(compare);
    body.replaceChildren(...kept.slice(0, room).map(cellsOf));
    el("more").hidden = kept.length <= room;
    el("count").textContent = `${kept.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows`;
  }
  heads.forEach((head, i) => head.querySelector("button").addEventListener("click", () => {
    falling = sortedBy === i && !falling;
    sortedBy = i;
    heads.forEach((one) => one.setAttribute("aria-sort", one === head ? (falling ? "descending" : "ascending") : "none"));
    show();
  }));
  for (const id of ["find", "purchase", "fits"]) el(id).addEventListener("input", () => { room = PAGE; show(); });
  el("more").addEventListener("click", () => { room += PAGE; show(); });
  el("everything").addEventListener("change", (event) => {
    rows = event.target.checked ? all : offered;
    room = PAGE;
    show();
  });
  show();

  // --- theme, saving, printing ----------------------------------------------------------------------------------
  const darkSystem = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ?? (darkSystem.matches ? "dark" : "light")) === "dark";
  const tellTheme = () => el("theme").setAttribute("aria-pressed", String(isDark()));
  el("theme").addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; tellTheme(); });
  darkSystem.addEventListener("change", tellTheme);
  tellTheme();
  el("download").addEventListener("click", async () => {
    const link = document.createElement("a"), text = JSON.stringify(await unpack("plan-data"), null, 1);
    link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    link.download = "plan.json";
    link.click();
    URL.revokeObjectURL(link.href);
  });
  addEventListener("beforeprint", () => { document.querySelectorAll("details").forEach((one) => { one.open = true; }); draw(); });
})();
