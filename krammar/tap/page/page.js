// The page: rows from the tap's server or from the document, filters, and the three views.

const config = JSON.parse(byId("config").textContent);
const token = new URLSearchParams(location.search).get("token") || "";

const rows = []; // all exchanges, by number
const byNumber = new Map();
const links = new Map(); // connections, by number
let shown = []; // the exchanges that pass the filters
let order = { key: "t", down: false };
let range = null; // the selected piece of time, in µs
let selected = null;
let view = "requests";
let dropped = 0; // exchanges that the tap or the reader has thrown away
let least = 0; // smaller numbers were cleared by the reader

const BAD = new Set(["error", "bad", "unanswered"]);
const isError = (row) => BAD.has(row.state);

function rowOf(json) {
  const [n, t, c, api, v, client, topics, text, sent, got, lat, state, errors, place] = json;
  const row = { n, t, c, api, v, client, topics, text, sent, got, lat, state, errors, place };
  row.hay = `${api} ${client} ${text} ${topics.join(" ")} ${errors.join(" ")} ${state} #${c}`.toLowerCase();
  return row;
}

function take(batch) {
  for (const json of batch.rows) {
    const row = rowOf(json);
    if (row.n < least) continue;
    const known = byNumber.get(row.n);
    if (known) Object.assign(known, row);
    else {
      byNumber.set(row.n, row);
      rows.push(row);
    }
  }
  for (const [n, client, upstream, opened, closed, reason] of batch.connections) {
    links.set(n, { n, client, upstream, opened, closed, reason });
  }
  let old = 0;
  while (old < rows.length && rows[old].n < batch.first) {
    byNumber.delete(rows[old].n);
    old += 1;
  }
  if (old) {
    rows.splice(0, old);
    dropped += old;
  }
}

// -- filters

const filters = { text: byId("text"), api: byId("api"), client: byId("client"), topic: byId("topic"), errors: byId("errors") };
const ALL = { api: "All APIs", client: "All clients", topic: "All topics" };
const known = { api: "", client: "", topic: "" };

function fillSelect(name, values) {
  const names = [...values].sort().slice(0, 2000);
  const select = filters[name];
  if (select.value && !names.includes(select.value)) names.push(select.value);
  const key = names.join("\n");
  if (known[name] === key && select.options.length) return;
  known[name] = key;
  const value = select.value;
  select.replaceChildren(new Option(ALL[name], ""), ...names.map((each) => new Option(each, each)));
  select.value = value;
}

function fillSelects() {
  const apis = new Set(), clients = new Set(), topics = new Set();
  for (const row of rows) {
    apis.add(row.api);
    if (row.client) clients.add(row.client);
    for (const topic of row.topics) topics.add(topic);
  }
  fillSelect("api", apis);
  fillSelect("client", clients);
  fillSelect("topic", topics);
}

function matching() {
  const words = filters.text.value.toLowerCase().split(/\s+/).filter(Boolean);
  const api = filters.api.value, client = filters.client.value, topic = filters.topic.value;
  const errors = filters.errors.checked;
  return rows.filter(
    (row) =>
      (!errors || isError(row)) &&
      (!api || row.api === api) &&
      (!client || row.client === client) &&
      (!topic || row.topics.includes(topic)) &&
      (!range || (row.t >= range[0] && row.t <= range[1])) &&
      words.every((word) => row.hay.includes(word)),
  );
}

function isFiltered() {
  const { text, api, client, topic, errors } = filters;
  return Boolean(text.value || api.value || client.value || topic.value || errors.checked || range);
}

function reset() {
  for (const select of [filters.text, filters.api, filters.client, filters.topic]) select.value = "";
  filters.errors.checked = false;
  range = null;
  refresh();
}

function only(name, value) {
  filters[name].value = value;
  refresh();
}

// -- time

let span = [0, 1];

function measure() {
  let begin = Infinity, end = -Infinity;
  longest = SHORTEST * 10;
  for (const row of rows) {
    if (row.t < begin) begin = row.t;
    const last = row.t + (row.lat || 0);
    if (row.lat > longest) longest = row.lat;
    if (last > end) end = last;
  }
  span = begin <= end ? [begin, Math.max(end, begin + 1000)] : [0, 1];
}

// -- the list

const SHORTEST = 100; // µs; the meter of latencies is logarithmic from here to the longest one
let longest = SHORTEST;

function meter(us) {
  const share = Math.log(Math.max(SHORTEST, us) / SHORTEST) / Math.log(longest / SHORTEST);
  const bar = el("i");
  bar.style.width = `${Math.max(1, Math.min(100, share * 100))}%`;
  return bar;
}

function showSelected(element, number) {
  element.classList.toggle("selected", selected === number);
  element.setAttribute("aria-selected", String(selected === number));
}

function drawRow(index) {
  const row = shown[index];
  const element = el("div", "row");
  element.setAttribute("role", "option");
  element.dataset.n = row.n;
  if (isError(row)) element.classList.add("bad");
  if (row.state === "waiting") element.classList.add("waiting");
  element.id = `row-${row.n}`;
  showSelected(element, row.n);
  const api = el("span", "api");
  api.append(el("b", "", row.api), el("i", "", row.v === null ? "" : `v${row.v}`));
  const about = el("span", "about");
  if (row.errors.length) about.append(el("b", "", [...new Set(row.errors)].join(", ")), " ");
  about.append(row.text);
  about.title = about.textContent;
  const latency = el("span", "num state", row.lat !== null ? duration(row.lat) : row.state === "waiting" ? "waiting" : "–");
  const bar = el("span", "meter");
  if (row.lat !== null) bar.append(meter(row.lat));
  element.append(
    el("span", "time", clock(row.t, 4)),
    api,
    el("span", "client", row.client || `#${row.c}`),
    about,
    el("span", "num size sent", size(row.sent)),
    el("span", "num size got", size(row.got)),
    latency,
    bar,
  );
  return element;
}

// On narrow screens, rows have two lines (page.css).
const narrow = matchMedia("(max-width: 760px)");
const rowHeight = () => (narrow.matches ? 44 : 27);
const list = new VirtualList(byId("rows"), rowHeight(), drawRow);
list.follow = config.live;
narrow.addEventListener("change", () => {
  list.height = rowHeight();
  list.update(list.length);
});
byId("rows").addEventListener("click", (event) => {
  const element = event.target.closest(".row");
  if (element) openRow(Number(element.dataset.n));
});
byId("rows").addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20, Home: -1e9, End: 1e9 }[event.key];
  if (step === undefined || !shown.length) return;
  event.preventDefault();
  const at = shown.findIndex((row) => row.n === selected);
  const next = Math.max(0, Math.min(shown.length - 1, at + step));
  list.show(next);
  openRow(shown[next].n);
});

const COLUMNS = [
  ["t", "Time", "time"], ["api", "API", "api"], ["client", "Client", "client"], ["text", "About", "about"],
  ["sent", "Sent", "num sent"], ["got", "Received", "num got"], ["lat", "Latency", "num"], ["lat", "", "meter"],
];

function drawHead() {
  byId("head").replaceChildren(
    ...COLUMNS.map(([key, title, className]) => {
      const cell = el("span", className);
      if (!title) return cell;
      const button = el("button", "", title);
      if (order.key === key && (key !== "t" || order.down)) {
        button.setAttribute("aria-sort", order.down ? "descending" : "ascending");
      }
      button.addEventListener("click", () => {
        const numeric = ["sent", "got", "lat"].includes(key);
        if (order.key !== key) order = { key, down: numeric || key === "t" };
        else if (order.down === numeric) order = { key, down: !numeric };
        else order = { key: "t", down: false };
        refresh();
      });
      cell.append(button);
      return cell;
    }),
  );
}

function sortShown() {
  if (order.key === "t" && !order.down) return;
  const { key, down } = order;
  const missing = typeof shown[0]?.[key] === "string" ? "" : -1;
  shown.sort((a, b) => {
    const [x, y] = [a[key] ?? missing, b[key] ?? missing];
    return (x < y ? -1 : x > y ? 1 : a.n - b.n) * (down ? -1 : 1);
  });
}

// -- connections

let laneRows = new Map();
let laneLinks = [];
const lanes = new VirtualList(byId("lanes"), 38, (index) => {
  const link = laneLinks[index];
  const own = laneRows.get(link.n) || [];
  const lane = el("div", "lane");
  const who = el("div", "who");
  const client = own.find((row) => row.client)?.client || link.client || "";
  const name = el("div", "", `#${link.n} ${client}`);
  const more = el("small", "", `${link.client} → ${link.upstream}${link.reason ? `, closed ${link.reason}` : ""}`);
  who.title = `${name.textContent}\n${more.textContent}`;
  who.append(name, more);
  const canvas = el("canvas");
  lane.append(who, canvas);
  const [begin, end] = range || span;
  requestAnimationFrame(() => drawLane(canvas, own, begin, end, link, isError));
  const find = (event) => {
    const box = canvas.getBoundingClientRect();
    const t = begin + ((event.clientX - box.left) / box.width) * (end - begin);
    const slack = ((end - begin) / box.width) * 4;
    let best = null, least = Infinity;
    for (const row of own) {
      const away = Math.max(row.t - t, t - row.t - (row.lat || 0), 0);
      if (away < least || (away === least && best && (row.lat || 0) < (best.lat || 0))) [best, least] = [row, away];
    }
    return least <= slack ? best : null;
  };
  canvas.addEventListener("pointermove", (event) => {
    const row = find(event);
    tip(row && `${clock(row.t)}  ${row.api} v${row.v}  ${duration(row.lat)}  ${[...row.errors, row.text].join(" ")}`, event);
    canvas.style.cursor = row ? "pointer" : "";
  });
  canvas.addEventListener("pointerleave", () => tip(null));
  canvas.addEventListener("click", (event) => {
    const row = find(event);
    if (row) openRow(row.n);
  });
  return lane;
});

function tip(text, event) {
  const box = byId("tip");
  box.hidden = !text;
  if (!text) return;
  box.textContent = text;
  box.style.left = `${Math.max(4, Math.min(event.clientX + 12, innerWidth - box.offsetWidth - 8))}px`;
  box.style.top = `${event.clientY + 18 + box.offsetHeight > innerHeight ? event.clientY - box.offsetHeight - 8 : event.clientY + 18}px`;
}

function drawConnections() {
  laneRows = new Map();
  for (const row of shown) {
    if (!laneRows.has(row.c)) laneRows.set(row.c, []);
    laneRows.get(row.c).push(row);
  }
  const numbers = isFiltered() ? [...laneRows.keys()] : [...new Set([...links.keys(), ...laneRows.keys()])];
  laneLinks = numbers
    .sort((a, b) => a - b)
    .map((n) => links.get(n) || { n, client: "", upstream: "", opened: null, closed: null, reason: "" });
  lanes.update(laneLinks.length);
}

// -- summary

function table(heads, lines) {
  const element = el("table");
  const head = el("tr");
  for (const text of heads) head.append(el("th", text.startsWith("<") ? "left" : "", text.replace("<", "")));
  element.append(head);
  for (const line of lines) {
    const tr = el("tr");
    for (const cell of line) {
      const td = el("td");
      if (cell instanceof Node) td.append(cell);
      else if (Array.isArray(cell)) {
        td.className = "left";
        td.append(...cell);
      } else td.textContent = cell;
      tr.append(td);
    }
    element.append(tr);
  }
  const wrap = el("div", "wrap");
  wrap.append(element);
  return wrap;
}

function card(title, small, content, wide) {
  const element = el("div", wide ? "card wide" : "card");
  const heading = el("h3", "", title);
  if (small) heading.append(el("small", "", small));
  element.append(heading, content);
  return element;
}

function link(text, action) {
  const button = el("button", "", text);
  button.addEventListener("click", action);
  return button;
}

function grouped(key) {
  const groups = new Map();
  for (const row of shown) {
    for (const value of [key(row)].flat()) {
      if (!groups.has(value)) groups.set(value, []);
      groups.get(value).push(row);
    }
  }
  return groups;
}

const latenciesOf = (some) => some.filter((row) => row.lat !== null).map((row) => row.lat).sort((a, b) => a - b);
const total = (some, key) => some.reduce((sum, row) => sum + (row[key] || 0), 0);

function drawSummary() {
  const box = byId("summary");
  const scroll = box.scrollTop;
  const errors = shown.filter(isError);
  const latencies = latenciesOf(shown);
  const [begin, end] = range || span;
  const seconds = Math.max((end - begin) / 1_000_000, 0.001);
  const tiles = el("div", "tiles");
  for (const [name, value, className] of [
    ["Requests", count(shown.length)],
    ["Per second", count(Math.round(shown.length / seconds))],
    ["Errors", count(errors.length), errors.length ? "tile bad" : "tile"],
    ["Median latency", duration(quantile(latencies, 0.5)) || "–"],
    ["99th percentile", duration(quantile(latencies, 0.99)) || "–"],
    ["Sent", size(total(shown, "sent"))],
    ["Received", size(total(shown, "got"))],
    ["Connections", count(new Set(shown.map((row) => row.c)).size)],
  ]) {
    const tile = el("div", className || "tile");
    tile.append(el("b", "", value), el("span", "", name));
    tiles.append(tile);
  }
  const rate = el("canvas"), dots = el("canvas");
  const apis = [...grouped((row) => row.api)].sort((a, b) => b[1].length - a[1].length);
  const apiLines = apis.map(([api, own]) => {
    const own_latencies = latenciesOf(own);
    const bad = own.filter(isError).length;
    const cell = el("span", "", bad ? count(bad) : "");
    cell.style.color = "var(--bad)";
    return [
      link(api, () => { only("api", api); choose("requests"); }),
      count(own.length), cell, duration(quantile(own_latencies, 0.5)), duration(quantile(own_latencies, 0.99)),
      duration(own_latencies.at(-1)), size(total(own, "sent")), size(total(own, "got")),
    ];
  });
  const clients = [...grouped((row) => row.client || `#${row.c}`)].sort((a, b) => (a[0] < b[0] ? -1 : 1)).slice(0, 200);
  const versionLines = clients.map(([client, own]) => {
    const versions = new Map();
    for (const row of own) {
      if (row.v === null) continue;
      if (!versions.has(row.api)) versions.set(row.api, new Set());
      versions.get(row.api).add(row.v);
    }
    const chips = [...versions].sort().map(([api, some]) => {
      const chip = el("span", "chip", `${api} `);
      chip.append(el("b", "", [...some].sort((a, b) => a - b).map((v) => `v${v}`).join(", ")));
      return chip;
    });
    return [client, chips];
  });
  const kinds = [...grouped((row) => (isError(row) ? (row.errors.length ? [...new Set(row.errors)] : [row.state]) : []))];
  const errorLines = kinds.sort((a, b) => b[1].length - a[1].length).slice(0, 100).map(([name, own]) => [
    link(name, () => { only("text", name); choose("requests"); }),
    count(own.length),
    [...new Set(own.map((row) => row.api))].map((api) => el("span", "chip", api)),
  ]);
  const rateCard = card("Requests over time", "", rate);
  const parts = [
    tiles, rateCard, card("Latencies", "one dot per request", dots),
    card("By API", "", table(["API", "Requests", "Errors", "Median", "99 %", "Longest", "Sent", "Received"], apiLines), true),
    card("Versions negotiated", "by client id", table(["Client", "<Versions that the client has used"], versionLines)),
  ];
  if (errorLines.length) parts.push(card("Errors", "", table(["Error", "Requests", "<In"], errorLines)));
  box.replaceChildren(...parts);
  const peak = drawRate(rate, shown, begin, end, isError);
  rateCard.querySelector("h3").append(el("small", "", `highest rate ${count(Math.round(peak))} per second`));
  drawLatencies(dots, shown, begin, end, isError);
  box.scrollTop = scroll;
}

// -- the overview, on which a range can be drawn

const overview = byId("overview");
let drag = null;

function drawOverview() {
  drawRate(overview, rows, span[0], span[1], isError);
  const chosen = drag || range;
  if (!chosen) return;
  const context = overview.getContext("2d");
  const width = overview.clientWidth;
  const [left, right] = chosen.map((t) => ((t - span[0]) / (span[1] - span[0])) * width).sort((a, b) => a - b);
  context.fillStyle = colour("back");
  context.globalAlpha = 0.7;
  context.fillRect(0, 0, left, 100);
  context.fillRect(right, 0, width - right, 100);
  context.globalAlpha = 1;
  context.fillStyle = colour("accent");
  context.fillRect(left - 1, 0, 2, 100);
  context.fillRect(right - 1, 0, 2, 100);
}

function timeAt(event) {
  const box = overview.getBoundingClientRect();
  const share = Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
  return span[0] + share * (span[1] - span[0]);
}

overview.addEventListener("pointerdown", (event) => {
  overview.setPointerCapture(event.pointerId);
  drag = [timeAt(event), timeAt(event)];
});
overview.addEventListener("pointermove", (event) => {
  if (!drag) return;
  drag[1] = timeAt(event);
  drawOverview();
});
overview.addEventListener("pointerup", () => {
  if (!drag) return;
  const [begin, end] = [...drag].sort((a, b) => a - b);
  range = (end - begin) / (span[1] - span[0]) > 0.004 ? [begin, end] : null;
  drag = null;
  refresh();
});

// -- one row

const detail = new Detail();
let frames = [null, null];
let asked = 0;

async function openRow(number) {
  selected = number;
  for (const element of list.drawn.values()) showSelected(element, Number(element.dataset.n));
  byId("rows").setAttribute("aria-activedescendant", `row-${number}`);
  const row = byNumber.get(number);
  if (!row) return;
  if (byId("detail").hidden) {
    byId("detail").hidden = false;
    document.querySelector("main").classList.add("open");
    later(); // the views are narrower now
  }
  byId("detail-title").textContent = `${row.api}${row.v === null ? "" : ` v${row.v}`}`;
  const at = links.get(row.c);
  byId("facts").textContent = [
    clock(row.t, 6), row.client, `connection ${row.c}${at ? ` (${at.client} → ${at.upstream})` : ""}`,
    row.lat === null ? row.state : duration(row.lat), ...new Set(row.errors),
  ].filter(Boolean).join(" · ");
  const mine = (asked += 1);
  let found;
  try {
    found = await detailsOf(row);
  } catch (error) {
    found = null;
    if (mine !== asked) return;
    frames = [null, null];
    detail.show(null);
    byId("problem").hidden = false;
    byId("problem").textContent = error.message;
    return;
  }
  if (mine !== asked) return;
  frames = found;
  byId("tab-request").disabled = !frames[0];
  byId("tab-response").disabled = !frames[1];
  const response = frames[1] && (!frames[0] || isError(row) || byId("tab-response").getAttribute("aria-selected") === "true");
  chooseFrame(response ? 1 : 0);
}

function chooseFrame(index) {
  byId("tab-request").setAttribute("aria-selected", String(index === 0));
  byId("tab-response").setAttribute("aria-selected", String(index === 1));
  detail.show(frames[index]);
}

byId("tab-request").addEventListener("click", () => chooseFrame(0));
byId("tab-response").addEventListener("click", () => chooseFrame(1));

function closeDetail() {
  selected = null;
  asked += 1;
  byId("detail").hidden = true;
  document.querySelector("main").classList.remove("open");
  refresh();
}

byId("close").addEventListener("click", closeDetail);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !byId("detail").hidden) closeDetail();
  if (event.key === "/" && !/^(INPUT|SELECT)$/.test(document.activeElement.tagName)) {
    event.preventDefault();
    filters.text.focus();
  }
});

// -- where rows and details come from

async function unpack(id) {
  const packed = Uint8Array.from(atob(byId(`data-${id}`).textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

const unpacked = new Map();

async function detailsOf(row) {
  if (!config.live) {
    const [block, place] = row.place;
    if (!unpacked.has(block)) {
      if (unpacked.size >= 4) unpacked.delete(unpacked.keys().next().value);
      unpacked.set(block, unpack(`details-${block}`));
    }
    return (await unpacked.get(block))[place];
  }
  let answer;
  try {
    answer = await fetch(`details?row=${row.n}&token=${encodeURIComponent(token)}`);
  } catch {
    throw new Error("The tap does not answer: it has stopped.");
  }
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

let source = null;
let cursor = 0;

function setStatus(state, text) {
  byId("dot").className = state;
  byId("source").textContent = text;
}

function listen() {
  source = new EventSource(`events?after=${cursor}&token=${encodeURIComponent(token)}`);
  source.onopen = () => setStatus("live", config.source);
  source.onmessage = (event) => {
    cursor = Number(event.lastEventId);
    take(JSON.parse(event.data));
    later();
  };
  source.onerror = () => setStatus("ended", "The tap has stopped.");
}

function pause() {
  if (source) {
    source.close();
    source = null;
    setStatus("paused", "Paused");
  } else listen();
  byId("pause").textContent = source ? "Pause" : "Resume";
}

byId("pause").addEventListener("click", pause);
byId("clear").addEventListener("click", () => {
  least = rows.length ? rows.at(-1).n + 1 : least;
  rows.length = 0;
  byNumber.clear();
  for (const [n, link] of links) if (link.closed !== null) links.delete(n);
  range = null;
  if (selected !== null) closeDetail();
  refresh();
});

// -- everything together

let waiting = false;

// Several batches that arrive together are drawn once.
function later() {
  if (waiting) return;
  waiting = true;
  // With 100,000 rows, drawing takes 70 ms, and the summary 350 ms.
  const pause = rows.length < 10_000 ? 30 : view === "summary" ? 2000 : 250;
  setTimeout(() => {
    waiting = false;
    refresh();
  }, pause);
}

function drawView() {
  if (selected === null) byId("rows").removeAttribute("aria-activedescendant");
  else byId("rows").setAttribute("aria-activedescendant", `row-${selected}`);
  if (view === "requests") list.update(shown.length);
  else if (view === "connections") drawConnections();
  else drawSummary();
}

function refresh() {
  measure();
  fillSelects();
  shown = matching();
  sortShown();
  for (const name of ["api", "client", "topic"]) filters[name].classList.toggle("set", Boolean(filters[name].value));
  const errors = shown.reduce((sum, row) => sum + (isError(row) ? 1 : 0), 0);
  const of = shown.length === rows.length ? "" : ` of ${count(rows.length)}`;
  byId("count").textContent = `${count(shown.length)}${of} requests${errors ? `, ${count(errors)} errors` : ""}`;
  byId("reset").hidden = !isFiltered();
  const empty = byId("empty");
  empty.hidden = shown.length > 0;
  empty.textContent = rows.length ? "No request passes the filters." : config.live ? "Waiting for clients to connect to the tap." : "The capture has no frames.";
  drawHead();
  drawOverview();
  drawView();
}

function choose(name) {
  view = name;
  for (const each of ["requests", "connections", "summary"]) {
    byId(each).hidden = each !== name;
    byId(`tab-${each}`).setAttribute("aria-selected", String(each === name));
  }
  tip(null);
  drawView();
}

for (const each of ["requests", "connections", "summary"]) {
  byId(`tab-${each}`).addEventListener("click", () => choose(each));
}
for (const filter of Object.values(filters)) filter.addEventListener("input", refresh);
byId("reset").addEventListener("click", reset);
byId("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  refresh();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refresh);
addEventListener("resize", later);

async function start() {
  for (const element of document.querySelectorAll(".live")) element.hidden = !config.live;
  document.title = `${config.source} · krammar tap`;
  if (config.live) {
    setStatus("", config.source);
    refresh();
    listen();
    return;
  }
  setStatus("", config.omitted ? `${config.source}: the first requests; ${count(config.omitted)} more are left out` : config.source);
  const data = await unpack("rows");
  take(data);
  refresh();
}

start();
