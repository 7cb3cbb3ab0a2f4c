// Drawings on canvases: requests over time, latencies, and the time line of each connection.

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function prepare(canvas) {
  const scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  canvas.width = Math.max(1, Math.round(width * scale));
  canvas.height = Math.max(1, Math.round(height * scale));
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  context.font = "11px system-ui, sans-serif";
  return { context, width, height };
}

// The moments of labels: round steps in the units that people count time in.
function ticks(begin, end, most) {
  const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500].flatMap((n) => [n, n * 1000]);
  for (const seconds of [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 86400]) {
    steps.push(seconds * 1_000_000);
  }
  steps.sort((a, b) => a - b);
  const step = steps.find((s) => (end - begin) / s <= most) || steps.at(-1) * 7;
  const found = [];
  for (let t = Math.ceil(begin / step) * step; t <= end && found.length < 100; t += step) found.push(t);
  return { found, digits: step >= 1_000_000 ? 0 : step >= 1000 ? 3 : 6 };
}

function timeAxis(context, width, height, begin, end) {
  const { found, digits } = ticks(begin, end, Math.max(1, width / 110));
  context.textBaseline = "bottom";
  for (const t of found) {
    const x = ((t - begin) / (end - begin || 1)) * width;
    context.fillStyle = colour("line");
    context.fillRect(Math.round(x), 0, 1, height);
    if (x > width - 56) continue;
    context.fillStyle = colour("dim");
    context.fillText(clock(t, digits), x + 4, height - 2);
  }
}

// Numbers of requests per piece of time, errors below in red.
function drawRate(canvas, rows, begin, end, isError) {
  const { context, width, height } = prepare(canvas);
  const floor = height - 15;
  const bins = Math.max(1, Math.floor(width / 4));
  const all = new Uint32Array(bins);
  const bad = new Uint32Array(bins);
  const span = end - begin || 1;
  for (const row of rows) {
    if (row.t < begin || row.t > end) continue;
    const bin = Math.min(bins - 1, Math.floor(((row.t - begin) / span) * bins));
    all[bin] += 1;
    if (isError(row)) bad[bin] += 1;
  }
  if (rows.length) timeAxis(context, width, height, begin, end);
  const most = all.reduce((a, b) => Math.max(a, b), 1);
  const step = width / bins;
  for (let bin = 0; bin < bins; bin += 1) {
    if (!all[bin]) continue;
    const high = Math.max(2, (all[bin] / most) * (floor - 6));
    const red = bad[bin] ? Math.max(2, (bad[bin] / most) * (floor - 6)) : 0;
    context.fillStyle = colour("bar");
    context.fillRect(bin * step, floor - high, step - 1, high);
    context.fillStyle = colour("bad");
    context.fillRect(bin * step, floor - red, step - 1, red);
  }
  return (most * 1_000_000 * bins) / span;
}

// Latencies over time on a logarithmic scale, one dot per request.
function drawLatencies(canvas, rows, begin, end, isError) {
  const { context, width, height } = prepare(canvas);
  const floor = height - 15;
  let most = 1000;
  for (const row of rows) if (row.lat > most) most = row.lat;
  const scale = Math.log10(most * 1.5) - 1;
  const y = (us) => floor - ((Math.log10(Math.max(10, us)) - 1) / scale) * (floor - 4);
  timeAxis(context, width, height, begin, end);
  context.textBaseline = "middle";
  for (let power = 100; power <= most * 1.5; power *= 10) {
    context.fillStyle = colour("line");
    context.fillRect(0, Math.round(y(power)), width, 1);
  }
  const every = Math.ceil(rows.length / 20_000);
  const span = end - begin || 1;
  for (const wanted of [false, true]) {
    context.fillStyle = colour(wanted ? "bad" : "accent");
    context.globalAlpha = wanted ? 0.9 : 0.45;
    for (let index = 0; index < rows.length; index += wanted ? 1 : every) {
      const row = rows[index];
      if (row.lat === null || isError(row) !== wanted) continue;
      context.fillRect(((row.t - begin) / span) * (width - 3), y(row.lat) - 1.5, 3, 3);
    }
  }
  context.globalAlpha = 1;
  for (let power = 100; power <= most * 1.5; power *= 10) {
    const text = duration(power).replace(".00", "").replace(".0", "");
    context.fillStyle = colour("back");
    context.fillRect(0, y(power) - 7, context.measureText(text).width + 6, 14);
    context.fillStyle = colour("dim");
    context.fillText(text, 2, y(power));
  }
}

// What one connection did: a bar per request, from the request to its response.
function drawLane(canvas, rows, begin, end, link, isError) {
  const { context, width, height } = prepare(canvas);
  const span = end - begin || 1;
  const x = (t) => ((t - begin) / span) * width;
  const opened = Math.max(0, link && link.opened !== null ? x(link.opened) : 0);
  const closed = Math.min(width, link && link.closed !== null ? x(link.closed) : width);
  context.fillStyle = colour("lane");
  context.fillRect(opened, height / 2 - 1, Math.max(1, closed - opened), 2);
  const plain = colour("bar");
  const bad = colour("bad");
  const waiting = colour("wait");
  for (const row of rows) {
    const from = x(row.t);
    const to = row.lat === null ? (row.state === "waiting" ? closed : from) : x(row.t + row.lat);
    if (to < 0 || from > width) continue;
    const error = isError(row);
    context.fillStyle = error ? bad : row.state === "waiting" ? waiting : plain;
    context.globalAlpha = error ? 1 : 0.7;
    const high = error ? 20 : 14;
    context.fillRect(from, (height - high) / 2, Math.max(1.5, to - from), high);
  }
  context.globalAlpha = 1;
}
