
"use strict";
// How things are written. Everything shown is put in as text; nothing that comes from a record is ever read as markup.
const states = {
  created: "starting", claimed: "claimed", running: "running", cleaning: "idle, being cleaned",
  held: "held for a person", pooled: "idle", ending: "terminating", gone: "gone",
};
const waiting = (request) => request.phase === "Pending" || request.phase === "Fulfilling";
// A request that was refused for what it asked, or that a person failed, is no trouble of the yard: it has a group of its
// own. All reasons are so but that it was not served in time; the message begins with the reason.
const slip = (request) => request.phase === "Failed" && /^(?!DeadlinePassed)[A-Z][A-Za-z]+: /.test(request.message);
const phaseOf = (request) => (slip(request) ? "Refused" : request.phase);
const millis = (time) => Date.parse(time);
const byId = (id) => document.getElementById(id);
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const short = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });

function element(tag, text, names) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = text;
  if (names) made.className = names;
  return made;
}

function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Changes what is in a node without taking the keyboard's place away.
const REACHED = "a[href], button, summary";
function keepFocus(root, work) {
  const place = root.contains(document.activeElement) ? [...root.querySelectorAll(REACHED)].indexOf(document.activeElement) : -1;
  work();
  if (place >= 0 && !root.contains(document.activeElement)) root.querySelectorAll(REACHED)[place]?.focus({ preventScroll: true });
}

// A length of time as the command line writes it: 48s, 4m10s, 2h5m, 3d4h.
function long(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m${whole % 60}s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}h${Math.floor(whole / 60) % 60}m`;
  return `${Math.floor(whole / 86400)}d${Math.floor(whole / 3600) % 24}h`;
}

function plural(count, one, many) {
  return `${count} ${count === 1 ? one : many || one + "s"}`;
}

// The operator's time: that of its last answer, and on from there.
let heard = 0;
let told = 0;
const now = () => told + (held ? 0 : performance.now() - heard);

function relative(at, form) {
  const seconds = (at - now()) / 1000;
  if (form === "for") return long(-seconds);
  if (form === "left") return seconds > 0 ? `in ${long(seconds)}` : `${long(-seconds)} over`;
  const away = seconds > 0 ? `in ${long(seconds)}` : `${long(-seconds)} ago`;
  return form === "clock" ? `${clock.format(at)} (${away})` : away;
}

// A moment, told by how far away it is; exactly in its title.
function moment(iso, form) {
  const made = element("time");
  made.dateTime = iso;
  made.title = `${day.format(millis(iso))}, ${clock.format(millis(iso))} (${iso})`;
  made.dataset.form = form || "";
  put(made, relative(millis(iso), form));
  return made;
}

function tick(root) {
  for (const node of root.querySelectorAll("time[data-form]")) put(node, relative(millis(node.dateTime), node.dataset.form));
}

// A sentence, whose moments are told like all others.
function prose(text, tag) {
  const made = element(tag || "p");
  let rest = 0;
  for (const found of text.matchAll(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z/g)) {
    made.append(text.slice(rest, found.index), moment(found[0], "clock"));
    rest = found.index + found[0].length;
  }
  made.append(text.slice(rest));
  return made;
}

// A link out of the page, where the address is known.
function outward(text, address) {
  if (!address) return element("span", text);
  const made = element("a", text);
  made.href = address;
  made.rel = "noopener noreferrer";
  return made;
}

// A link to this page with other filters.
function inward(text, filters, title) {
  const made = element("a", text);
  made.href = "?" + new URLSearchParams(filters);
  made.dataset.filters = JSON.stringify(filters);
  if (title) made.title = title;
  return made;
}

function runAddress(request) {
  const found = /^(\S+\/\S+) run (\d+)\/.*\/(\d+)$/.exec(request);
  return found && data.head.github && `${data.head.github}/${found[1]}/actions/runs/${found[2]}/attempts/${found[3]}`;
}

function consoleAddress(machine) {
  const region = machine.region;
  if (!region || machine.is === "gone") return null;
  const domain = region.startsWith("cn-") ? "amazonaws.cn" : region.startsWith("us-gov-") ? "amazonaws-us-gov.com" : "aws.amazon.com";
  return `https://${region}.console.${domain}/ec2/home?region=${region}#InstanceDetails:instanceId=${encodeURIComponent(machine.id)}`;
}

const brief = (request) => request.replace(/\/default\/1$/, "");
const run = (request) => brief(request).replace(/^\S+ /, "");
