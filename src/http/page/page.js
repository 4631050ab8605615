// SPDX-License-Identifier: Apache-2.0
//
// The live picture. Asks for status.json once a second and shows differences as rates. All text
// that comes from the server is set as text, never as markup: names of tenants are an operator's.
"use strict";

const PERIOD_MS = 1000;
const KEPT = 120; // Samples in a chart.
const COLOURS = ["#2f7de1", "#1a9e6a", "#d9822b", "#9b59d0", "#d0455f", "#17a2b8", "#8a8f2a", "#7a6a5b"];

const ALWAYS = ["tenants", "threads", "replication"]; // Tables that are shown without rows too.

const byId = (id) => document.getElementById(id);
const history = { requests: new Map(), delays: new Map() };
let before = null;

function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

// ---- numbers for people ----

function short(value) {
  const steps = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k", 1e3]];
  for (const [from, unit, by] of steps) {
    if (value >= from) return (value / (by || from)).toFixed(1) + unit;
  }
  return value >= 100 || Number.isInteger(value) ? String(Math.round(value)) : value.toFixed(1);
}

function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return (unit === 0 ? value : value.toFixed(1)) + " " + units[unit];
}

function time(ns) {
  if (ns >= 1e9) return (ns / 1e9).toFixed(1) + " s";
  if (ns >= 1e6) return (ns / 1e6).toFixed(1) + " ms";
  if (ns >= 1e3) return (ns / 1e3).toFixed(0) + " µs";
  return ns + " ns";
}

function span(seconds) {
  const days = Math.floor(seconds / 86400);
  const clock = new Date(1000 * (seconds % 86400)).toISOString().slice(11, 19);
  return (days > 0 ? days + " d " : "") + clock;
}

// ---- rates ----

// How fast `read` of a status rises, per second; 0 while there is nothing to compare with.
function rate(now, read) {
  if (before === null) return 0;
  const risen = read(now.status) - read(before.status);
  const passed = (now.at - before.at) / 1000;
  return passed > 0 && risen > 0 ? risen / passed : 0; // It falls when the server was restarted.
}

const general = (name) => (status) => status.groups.general[name] || 0;
const of = (group, thing, name) => (status) => (status.groups[group][thing] || {})[name] || 0;

// The waiting time that `part` of a tenant's requests had at most since the last look, by its histogram: how many took
// less than each power of two.
function delay(now, name, part) {
  const counts = Object.keys(now.status.groups.tenants[name])
    .map((key) => /^delay_under_(\d+)_ns$/.exec(key))
    .filter((found) => found !== null)
    .map((found) => [Number(found[1]), rate(now, of("tenants", name, found[0]))])
    .sort((a, b) => a[0] - b[0]);
  const all = counts.reduce((sum, [, count]) => sum + count, 0);
  let below = 0;
  for (const [limit, count] of counts) {
    below += count;
    if (all > 0 && below >= part * all) return limit;
  }
  return 0;
}

// ---- charts ----

function remember(chart, series, value) {
  const lines = history[chart];
  if (!lines.has(series)) lines.set(series, []);
  const values = lines.get(series);
  values.push(value);
  if (values.length > KEPT) values.shift();
}

function svg(tag, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

function draw(chart, label) {
  const root = byId(chart);
  const [width, height, left, top, bottom] = [root.clientWidth || 600, root.clientHeight || 176, 56, 10, 24];
  const lines = [...history[chart]].slice(0, COLOURS.length);
  const most = Math.max(1, ...lines.flatMap(([, values]) => values));
  const y = (value) => top + (height - top - bottom) * (1 - value / most);
  root.setAttribute("viewBox", `0 0 ${width} ${height}`);
  root.replaceChildren();
  for (const part of [0, 0.5, 1]) {
    root.append(svg("line", { x1: left, x2: width, y1: y(part * most), y2: y(part * most), class: "axis" }));
    root.append(svg("text", { x: left - 6, y: y(part * most) + 4, "text-anchor": "end" }, label(part * most)));
  }
  lines.forEach(([name, values], index) => {
    const step = (width - left) / (KEPT - 1);
    const from = width - step * (values.length - 1);
    const path = values.map((value, i) => `${i ? "L" : "M"}${(from + i * step).toFixed(1)},${y(value).toFixed(1)}`);
    root.append(svg("path", { d: path.join(""), stroke: COLOURS[index] }));
    const at = left + (index * (width - left)) / COLOURS.length;
    root.append(svg("rect", { x: at, y: height - 11, width: 9, height: 9, fill: COLOURS[index] }));
    root.append(svg("text", { x: at + 13, y: height - 3 }, name.slice(0, 12)));
  });
}

// ---- what is shown ----

function tiles(now) {
  const status = now.status.groups.general;
  const gets = rate(now, general("cmd_get"));
  const hits = rate(now, general("get_hits"));
  const shown = [
    ["requests per second", short(gets + rate(now, general("cmd_set")) + rate(now, general("cmd_touch")))],
    ["hits", gets > 0 ? ((100 * hits) / gets).toFixed(1) + " %" : "–"],
    ["items", short(status.curr_items || 0)],
    [`for items, of ${bytes(status.limit_maxbytes || 0)}`, bytes(status.bytes || 0)],
    ["evictions per second", short(rate(now, general("evictions")))],
    ["connections", short(status.curr_connections || 0)],
    ["in, per second", bytes(Math.round(rate(now, general("bytes_read"))))],
    ["out, per second", bytes(Math.round(rate(now, general("bytes_written"))))],
  ];
  byId("tiles").replaceChildren(...shown.map(([label, value]) => {
    const tile = make("div", undefined, "tile");
    tile.append(make("b", value), make("span", label));
    return tile;
  }));
}

function table(id, columns, rows) {
  const head = make("tr");
  head.append(...columns.map((column) => make("th", column)));
  const lines = rows.map((cells) => {
    const line = make("tr");
    line.append(...cells.map((cell) => {
      const td = make("td");
      td.append(cell);
      return td;
    }));
    return line;
  });
  const root = byId(id);
  root.closest("section").hidden = rows.length === 0 && !ALWAYS.includes(id);
  root.replaceChildren(head, ...lines);
}

// The tenant's name, and whether it is held back at this moment.
function named(name, now) {
  const cell = make("span", name);
  const shed = rate(now, of("tenants", name, "shed"));
  const held = rate(now, of("tenants", name, "throttled"));
  if (shed > 0) cell.append(make("span", "refused", "badge shed"));
  else if (held > 0) cell.append(make("span", "held back", "badge held"));
  return cell;
}

function tenants(now) {
  const things = Object.entries(now.status.groups.tenants).filter(([, row]) => typeof row === "object");
  const cost = things.map(([name]) => rate(now, of("tenants", name, "cost")));
  const all = cost.reduce((sum, value) => sum + value, 0);
  for (const [name] of things) remember("delays", name, delay(now, name, 0.99));
  table("tenants", ["tenant", "weight", "rate", "served/s", "share now", "delayed/s", "throttled/s", "refused/s", "wait p50", "wait p99"],
    things.map(([name, row], i) => [
      named(name, now), String(row.weight ?? ""), row.rate > 0 ? short(row.rate) + "/s" : "–",
      short(rate(now, of("tenants", name, "served"))),
      all > 0 ? ((100 * cost[i]) / all).toFixed(0) + " %" : "–",
      short(rate(now, of("tenants", name, "delayed"))),
      short(rate(now, of("tenants", name, "throttled"))),
      short(rate(now, of("tenants", name, "shed"))),
      time(delay(now, name, 0.5)), time(delay(now, name, 0.99)),
    ]));
}

function threads(now) {
  const things = Object.keys(now.status.groups.threads);
  table("threads", ["core", "turns/s", "cut short/s", "in/s", "out/s"], things.map((name) => [
    name,
    short(rate(now, of("threads", name, "turns"))),
    short(rate(now, of("threads", name, "conn_yields"))),
    bytes(Math.round(rate(now, of("threads", name, "bytes_read")))),
    bytes(Math.round(rate(now, of("threads", name, "bytes_written")))),
  ]));
}

// Slaves that this page has seen: {thing, goneAt} by address, goneAt being undefined while they are there. The server forgets
// who has gone; a person wants to know. One that comes back has another port, so a new slave takes the place of one that has
// gone from the same host.
const seen = new Map();

function notice(slaves, at) {
  const host = (address) => address.slice(0, address.lastIndexOf(":"));
  for (const [thing, row] of slaves) {
    if (!seen.has(row.address)) {
      const before = [...seen].find(([address, slave]) => slave.goneAt !== undefined && host(address) === host(row.address));
      if (before) seen.delete(before[0]);
    }
    seen.set(row.address, { thing, row });
  }
  for (const [address, slave] of seen) {
    if (!slaves.some(([, row]) => row.address === address)) slave.goneAt ??= at;
  }
}

function slaveCells(now, address, { thing, row, goneAt }) {
  const cell = make("span", address);
  if (goneAt !== undefined) {
    cell.append(make("span", "gone", "badge shed"));
    return [cell, `for ${span((now.at - goneAt) / 1000)}`, "", "", ""];
  }
  if (row.state !== "streaming") cell.append(make("span", row.state, "badge held"));
  return [cell, row.state, bytes(row.behind_bytes), time(1e6 * row.behind_ms),
    bytes(Math.round(rate(now, of("replication", thing, "bytes_sent")))) + "/s"];
}

function masterCells(group) {
  const cell = make("span", group.master);
  if (group.link !== "streaming") {
    cell.append(make("span", group.link === "copying" ? "copying" : "not connected", "badge " + (group.link === "copying" ? "held" : "shed")));
  }
  if (group.reason !== undefined) cell.append(make("span", group.reason, "badge shed"));
  return [cell, group.link, group.age_ms >= 0 ? time(1e6 * group.age_ms) : "–"];
}

function replication(now) {
  const group = now.status.groups.replication || {};
  const slaves = Object.entries(group).filter(([, row]) => typeof row === "object" && row.address);
  notice(slaves, now.at);
  byId("replication").closest("section").hidden = group.enabled !== "yes";
  if (group.enabled !== "yes") return;
  byId("role").textContent = `${group.role}, followed by ${slaves.length} of at most ${group.slaves_max} slaves`;
  if (group.master !== undefined) {
    table("replication", ["master", "link", "last heard of"], [masterCells(group)]);
  } else {
    table("replication", ["slave", "state", "behind", "behind for", "sent"],
      [...seen].map(([address, slave]) => slaveCells(now, address, slave)));
  }
}

// Groups of which this page knows nothing more than that they have rows, and how one looks that is not in use.
function plain(now, id) {
  const found = now.status.groups[id] || {};
  const group = found.cluster === "-" ? {} : found;
  const things = Object.entries(group).filter(([, row]) => typeof row === "object");
  const figures = [...new Set(things.flatMap(([, row]) => Object.keys(row)))];
  const singles = Object.entries(group).filter(([, row]) => typeof row !== "object");
  if (things.length > 0) {
    table(id, ["", ...figures], things.map(([name, row]) => [name, ...figures.map((f) => String(row[f] ?? ""))]));
  } else {
    table(id, ["", ""], singles.map(([name, value]) => [name, String(value)]));
  }
}

function show(now) {
  const status = now.status.groups.general;
  const state = byId("state");
  state.textContent = now.status.ready ? "live" : "ending";
  state.className = "state " + state.textContent;
  byId("about").textContent = `${status.version}, process ${status.pid}, up ${span(status.uptime)}`;
  remember("requests", "get", rate(now, general("cmd_get")));
  remember("requests", "set", rate(now, general("cmd_set")));
  tiles(now);
  tenants(now);
  threads(now);
  replication(now);
  for (const id of ["epochs", "volumes"]) plain(now, id);
  draw("requests", short);
  draw("delays", time);
}

async function look() {
  try {
    const answer = await fetch("status.json", { signal: AbortSignal.timeout(5 * PERIOD_MS) });
    if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
    const now = { status: await answer.json(), at: performance.now() };
    show(now);
    before = now;
  } catch (error) {
    byId("state").textContent = "not reachable: " + error.message;
    byId("state").className = "state lost";
  }
  setTimeout(look, PERIOD_MS);
}

look();
