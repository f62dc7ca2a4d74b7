"use strict";

const make = (parent, name, attributes = {}, text = "") => {
  const found = parent.appendChild(document.createElementNS(parent.namespaceURI, name));
  Object.entries(attributes).forEach(([key, value]) => found.setAttribute(key, value));
  if (text) found.textContent = text;
  return found;
};

// ---- tables: export

// Lines of a table as texts. A cell with an interval has it in a second line, or below as `small`.
const linesOf = (table) => {
  const lines = [...table.tBodies[0].rows].map((row) => [...row.cells].map((cell) => {
    const [text, small = ""] = cell.textContent.trim().split("\n");
    return { text: text === "–" ? "" : text, small };
  }));
  const heads = [...table.tHead.rows[0].cells].map((cell, i) => {
    const number = lines.every((line) => /^[-−+]?[\d.,]*( %)?$/.test(line[i].text));
    return { name: cell.textContent.trim(), number };
  });
  return { heads, lines };
};

const csvOf = ({ heads, lines }) => {
  const quoted = (text) => (/[",\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text);
  const plain = (text) => text.replaceAll("\u00a0", " ").replaceAll("−", "-");
  const interval = (i) => lines.some((line) => /^\[.*, .*\]$/.test(line[i].small));
  const below = heads.map((h, i) => h.below || (interval(i) ? [`${plain(h.name)} low`, `${plain(h.name)} high`] : []));
  const numeric = (text) => plain(text).replace(/^(\d{1,3}(,\d{3})+)$/, (digits) => digits.replaceAll(",", ""));
  const head = heads.flatMap((h, i) => [plain(h.name), ...below[i]]);
  const body = lines.map((line) => line.flatMap(({ text, small }, i) => {
    if (!below[i].length) return [numeric(text) + (small ? " " + plain(small) : "")];
    const found = below[i].length > 1 ? plain(small).replace(/ s$|[[\]]/g, "").split(/–|, /) : [small];
    return [numeric(text), ...below[i].map((_, k) => found[k] || "")];
  }));
  return [head, ...body].map((line) => line.map(quoted).join(",")).join("\n") + "\n";
};

const latexOf = ({ heads, lines }) => {
  const special = { "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "−": "$-$", "–": "--", "×": "$\\times$", "↑": "$\\uparrow$", "↓": "$\\downarrow$", "\u00a0": "~" };
  const tex = (text) => text.replace(/[\\~^−–×↑↓\u00a0]|[&%$#_{}]/g, (c) => special[c] || "\\" + c);
  const cell = ({ text, small }) => (text ? tex(text) : "--") + (small ? ` {\\scriptsize ${tex(small)}}` : "");
  const out = ["% \\usepackage{booktabs}", `\\begin{tabular}{${heads.map((h) => (h.number ? "r" : "l")).join("")}}`, "\\toprule"];
  out.push(heads.map((h) => tex(h.name)).join(" & ") + " \\\\", "\\midrule");
  lines.forEach((line) => out.push(line.map(cell).join(" & ") + " \\\\"));
  return [...out, "\\bottomrule", "\\end{tabular}", ""].join("\n");
};

const download = (name, text, type) => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: type + ";charset=utf-8" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
};

document.querySelectorAll(".exports").forEach((bar) => {
  const table = bar.parentElement.querySelector("table");
  const file = bar.dataset.what.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "") || "table";
  bar.hidden = false;
  bar.addEventListener("click", (event) => {
    const format = event.target.dataset.format;
    if (!format) return;
    // a table that is drawn in parts has all of its lines, not those on the screen alone
    const found = table.allLines ? table.allLines() : linesOf(table);
    if (format === "csv") download(file + ".csv", csvOf(found), "text/csv");
    else download(file + ".tex", latexOf(found), "application/x-tex");
  });
});

// ---- all predictions: filter, sort, 100 lines at a time

document.querySelectorAll(".predictions").forEach((section) => {
  const STEP = 100;
  const data = JSON.parse(section.querySelector('script[type="application/json"]').textContent);
  const [form, status, table, more] = ["form", ".status", "table", ".more"].map((name) => section.querySelector(name));
  const all = data.rows.map((values, order) => {
    const row = Object.fromEntries(data.fields.map((name, i) => [name, values[i]]));
    return { ...row, order, words: [row.id, row.question, row.gold, row.text].join("\n").toLowerCase() };
  });
  const number = (value, digits) => (value === null ? "" : value.toFixed(digits));
  const span = (row) => (row.start === null ? "" : `${row.start.toFixed(2)}–${row.end.toFixed(2)} s`);
  // key: what a column is sorted by; text: what it says; from: the direction that a first click sorts in
  const columns = [
    { name: "Question", key: (row) => row.order, text: (row) => row.question || row.id, small: (row) => (row.question ? row.id : ""), below: ["id"], from: 1, wide: true },
    { name: "Condition", key: (row) => data.conditions.indexOf(row.condition), text: (row) => row.condition, from: 1 },
    { name: "System", key: (row) => data.systems.indexOf(row.system), text: (row) => row.system, from: 1, dot: (row) => data.slots[row.system] },
    { name: "Answer", key: (row) => row.text || null, text: (row) => row.text, small: span, below: ["start (s)", "end (s)"], from: 1, wide: true, spoken: (row) => row.spoken },
    { name: "Gold answer", key: (row) => row.gold || null, text: (row) => row.gold, from: 1, wide: true },
    { name: "FF1", key: (row) => row.ff1, text: (row) => number(row.ff1, 1), from: -1, numeric: true },
    { name: "F1", key: (row) => row.f1, text: (row) => number(row.f1, 1), from: -1, numeric: true },
    { name: "Error", key: (row) => row.error || null, text: (row) => row.error, from: 1 },
    { name: "Type", key: (row) => row.type || null, text: (row) => row.type, from: 1 },
    { name: "Length (s)", key: (row) => row.seconds, text: (row) => number(row.seconds, 2), from: 1, numeric: true },
  ].filter((column) => all.some((row) => column.text(row) !== "" || (column.small && column.small(row))));
  let sorted = null, shown = all, count = STEP;

  const choices = { condition: (row) => row.condition, system: (row) => row.system, error: (row) => row.error, type: (row) => row.type };
  Object.entries(choices).forEach(([name, label]) => {
    const found = [...new Set(all.map(label))].filter(Boolean);
    found.forEach((text) => form.elements[name].add(new Option(text, text)));
    if (found.length < 2) form.elements[name].closest("label").hidden = true;
  });

  const head = table.tHead.rows[0];
  columns.forEach((column) => {
    const cell = make(head, "th", { scope: "col", "aria-sort": "none", class: column.numeric ? "num" : "" });
    make(cell, "button", { type: "button" }, column.name).addEventListener("click", () => {
      sorted = { column, way: sorted && sorted.column === column ? -sorted.way : column.from };
      [...head.cells].forEach((other) => other.setAttribute("aria-sort", "none"));
      cell.setAttribute("aria-sort", sorted.way > 0 ? "ascending" : "descending");
      update();
    });
  });

  const line = (row) => {
    const found = document.createElement("tr");
    columns.forEach((column) => {
      const cell = make(found, "td", { class: column.numeric ? "num" : column.wide ? "text" : "" });
      const text = column.text(row), small = column.small && column.small(row);
      if (column.dot) make(cell, "i", { class: "dot", style: `--c: var(--s${column.dot(row) % SLOTS})` });
      if (column.name === "Question" && row.example) make(cell, "a", { href: "#" + row.example }, text);
      else if (text && column.spoken && column.spoken(row)) make(cell, "i", { title: "what is said there; the system gives a time alone" }, text);
      else cell.append(text);
      if (small) make(cell, "small", {}, small);
    });
    return found;
  };

  const draw = (from) => {
    if (!from) table.tBodies[0].replaceChildren();
    table.tBodies[0].append(...shown.slice(from, count).map(line));
    more.hidden = count >= shown.length;
    const scores = shown.filter((row) => row.ff1 !== null), mean = scores.reduce((sum, row) => sum + row.ff1, 0) / scores.length;
    const of = shown.length === all.length ? "" : ` of ${all.length.toLocaleString("en")}`;
    status.textContent = `${shown.length.toLocaleString("en")}${of} predictions${scores.length ? `, mean FF1 ${mean.toFixed(1)}` : ""}; ${Math.min(count, shown.length).toLocaleString("en")} on the screen.`;
  };

  const update = () => {
    const value = (name) => form.elements[name].value.trim();
    const bound = (name, none) => (value(name) === "" ? none : Number(value(name)));
    const words = value("text").toLowerCase(), only = form.elements.common.checked;
    const within = (x, name) => {
      const least = bound(name + "-least", null), most = bound(name + "-most", null);
      return (least === null && most === null) || (x !== null && (least === null || x >= least) && (most === null || x <= most));
    };
    shown = all.filter((row) => Object.entries(choices).every(([name, label]) => value(name) === "" || label(row) === value(name))
      && within(row.ff1, "ff1") && within(row.seconds, "length") && row.words.includes(words) && (!only || row.common));
    if (sorted) {
      const { column: { key }, way } = sorted;
      shown.sort((a, b) => {
        const [x, y] = [key(a), key(b)];
        if (x === null || y === null) return (x === null) - (y === null);  // what is not known stands last either way
        return way * (typeof x === "string" ? x.localeCompare(y) : x - y);
      });
    }
    count = STEP;
    draw(0);
  };

  table.allLines = () => ({
    heads: columns.map((column) => ({ name: column.name, number: Boolean(column.numeric), below: column.below })),
    lines: shown.map((row) => columns.map((column) => ({ text: column.text(row), small: (column.small && column.small(row)) || "" }))),
  });
  more.addEventListener("click", () => { const from = count; count += STEP; draw(from); });
  form.addEventListener("input", update);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(update));
  form.querySelector(".common").hidden = all.every((row) => row.common);
  section.hidden = false;
  update();
});

// ---- examples to listen to

(() => {
  const sounds = [...document.querySelectorAll("audio")];
  sounds.forEach((sound) => sound.addEventListener("play", () => sounds.forEach((other) => other !== sound && other.pause())));
  const HEAD = 88, LANE = 26, SECOND = 360;  // pixels: height of the waveform and of a lane; width of a second when zoomed in
  document.querySelectorAll(".example").forEach((box) => {
    const audio = box.querySelector(".passage"), svg = box.querySelector(".answers"), head = box.querySelector(".playhead");
    const track = box.querySelector(".track"), wide = box.querySelector(".wide"), zoom = box.querySelector(".zoom");
    const strips = [...box.querySelectorAll(".strip")], regions = [...box.querySelectorAll(".region")];
    const seconds = Number(box.dataset.seconds);
    let end = null, playing = null;

    const clear = () => { if (playing) playing.classList.remove("playing"); playing = end = null; };
    const ready = (then) => {
      if (audio.readyState >= 1) return then();
      audio.addEventListener("loadedmetadata", then, { once: true });
      audio.preload = "auto";
      audio.load();
    };
    const play = (start, stop, region) => ready(() => {
      clear();
      audio.currentTime = start;
      end = stop;
      playing = region;
      if (region) region.classList.add("playing");
      audio.play();
    });
    const playRegion = (region) => play(Number(region.dataset.start), Number(region.dataset.end), region);
    const draw = () => {
      const at = Math.min(audio.currentTime / seconds, 1) * wide.clientWidth;
      head.style.left = at + "px";
      if (!audio.paused && (at < track.scrollLeft || at > track.scrollLeft + track.clientWidth)) track.scrollLeft = at - 40;
      if (end !== null && audio.currentTime >= end) { audio.pause(); audio.currentTime = end; clear(); }
      if (!audio.paused) requestAnimationFrame(draw);
    };
    audio.addEventListener("play", () => { head.classList.add("on"); requestAnimationFrame(draw); });
    audio.addEventListener("pause", clear);
    audio.addEventListener("seeked", draw);

    // The answer under the pointer: of the lane that it is in, and on the waveform, which all answers share, the shortest.
    const aimed = (event) => {
      const frame = svg.getBoundingClientRect(), y = event.clientY - frame.top;
      const x = (1000 * (event.clientX - frame.left)) / frame.width, slack = 3000 / frame.width;  // 3 pixels
      const lane = y < HEAD ? null : Math.floor((y - HEAD) / LANE);
      const spans = regions.map((region) => {
        const pill = region.querySelector(".pill");
        return { region, lane: Math.floor((Number(pill.getAttribute("y")) - HEAD) / LANE), x: Number(pill.getAttribute("x")), width: Number(pill.getAttribute("width")) };
      });
      const under = spans.filter((s) => (lane === null || s.lane === lane) && x >= s.x - slack && x <= s.x + s.width + slack);
      const inside = under.filter((s) => x >= s.x && x <= s.x + s.width);
      return (inside.length ? inside : under).sort((a, b) => a.width - b.width).map((s) => s.region)[0] || null;
    };
    const mark = (region) => regions.forEach((other) => other.classList.toggle("aimed", other === region));
    svg.addEventListener("pointermove", (event) => mark(aimed(event)));
    svg.addEventListener("pointerleave", () => mark(null));
    svg.addEventListener("click", (event) => {
      const region = aimed(event), frame = svg.getBoundingClientRect();
      if (region) return playRegion(region);
      play((seconds * (event.clientX - frame.left)) / frame.width, null, null);
    });
    svg.addEventListener("keydown", (event) => {
      const region = event.target.closest(".region");
      if (!region || (event.key !== "Enter" && event.key !== " ")) return;
      event.preventDefault();
      playRegion(region);
    });

    // Blocks of units and phones are drawn when the example is opened; their names where there is room.
    const hue = (text) => Math.round((Number(text) * 137.508) % 360);  // neighbours in number are far apart in colour
    const drawStrip = (strip) => {
      const coloured = strip.classList.contains("coloured"), percent = (x) => (100 * x) / seconds + "%";
      JSON.parse(strip.dataset.blocks).forEach(([text, start, stop]) => {
        const block = make(strip, "g", { class: "block" + (coloured ? "" : " phone") });
        if (coloured) block.style.setProperty("--h", hue(text));
        make(block, "title", {}, `${text}, ${start.toFixed(2)} to ${stop.toFixed(2)} s`);
        make(block, "rect", { x: percent(start), width: percent(stop - start), y: 3, height: 20 });
        make(block, "text", { x: percent((start + stop) / 2), y: 17 }, text);
        block.addEventListener("click", () => play(start, stop, null));
      });
    };
    const fitNames = () => strips.forEach((strip) => {
      const scale = wide.clientWidth / seconds;
      JSON.parse(strip.dataset.blocks).forEach(([text, start, stop], i) => strip.children[i].classList.toggle("named", (stop - start) * scale > 5.6 * text.length + 2));
    });
    const open = () => {
      if (!box.open) return;
      box.querySelectorAll("audio").forEach((a) => { if (a.preload === "none") a.preload = "metadata"; });
      strips.filter((strip) => !strip.children.length).forEach(drawStrip);
      fitNames();
    };
    if (zoom) {
      zoom.hidden = false;
      zoom.addEventListener("click", () => {
        const on = zoom.getAttribute("aria-pressed") !== "true";
        zoom.setAttribute("aria-pressed", on);
        wide.style.width = on ? Math.max(seconds * SECOND, track.clientWidth) + "px" : "";
        track.classList.toggle("zoomed", on);
        const gold = box.querySelector(".region.gold");
        if (on && gold) track.scrollLeft = (Number(gold.dataset.start) / seconds) * wide.clientWidth - 40;
        fitNames();
        draw();
      });
    }
    box.addEventListener("toggle", () => { open(); if (!box.open) box.querySelectorAll("audio").forEach((a) => a.pause()); });
    open();
  });

  // an example that a link names is opened
  const show = () => {
    const named = location.hash.startsWith("#example-") && document.getElementById(location.hash.slice(1));
    if (named) { named.open = true; named.scrollIntoView(); }
  };
  addEventListener("hashchange", show);
  show();
})();
