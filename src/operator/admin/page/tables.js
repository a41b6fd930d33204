// The rows of each table.
const ORDER = ["pooled", "cleaning", "created", "claimed", "running", "held"];

function drawPool(row, pool) {
  cell(row, 0).replaceChildren(inward(pool.class, { class: pool.class }, `only class ${pool.class}`));
  const bar = cell(row, 1);
  const parts = ORDER.filter((state) => pool.have[state] > 0);
  const room = Math.max(0, pool.max - pool.live);
  const whole = Math.max(pool.max, pool.live, 1);
  const text = [...parts.map((state) => `${pool.have[state]} ${states[state]}`), `room for ${room}`, `idle target ${pool.desired}`].join(", ");
  bar.className = pool.live >= pool.max ? "bar full" : "bar";
  bar.setAttribute("role", "img");
  bar.setAttribute("aria-label", text);
  bar.title = text;
  const drawn = parts.map((state) => {
    const share = (pool.have[state] / whole) * 100;
    const part = element("span", share > 6 ? `${pool.have[state]}` : "", state);
    part.style.width = `${share}%`;
    return part;
  });
  for (const [name, at] of [["min", pool.min], ["target", pool.desired]]) {
    if (!(at > 0)) continue;
    const mark = element("i", null, name);
    mark.style.left = `calc(${Math.min(100, (at / whole) * 100)}% - 2px)`;
    drawn.push(mark);
  }
  bar.replaceChildren(...drawn);
  const numbers = [["Live", pool.live], ["Starting", pool.have.created + pool.inFlight], ["Idle target", pool.desired], ["Min", pool.min], ["Max", pool.max]];
  numbers.forEach(([label, number], index) => put(cell(row, 2 + index, label, "number"), `${number}`));
  const status = [pool.live >= pool.max && "at max", pool.paused && "paused",
    pool.heldBackSeconds !== null && `launches held back for ${long(pool.heldBackSeconds)}`].filter(Boolean);
  const stands = cell(row, 7);
  stands.replaceChildren();
  if (status.length > 0) stands.append(element("strong", status.join(", "), "warn"), " ");
  if (pool.message) stands.append(prose(pool.message, "span"));
  for (const set of pool.sets || []) stands.append(element("p", set, set.includes("not listened to") ? "warn" : "soft"));
  if (pool.cost) stands.append(element("p", cost(pool.cost), "soft"));
  if (pool.shares) stands.append(drawShares(pool));
}

// What an hour of the machines that a pool has now costs.
function cost(of) {
  const unpriced = of.unpriced > 0 ? `, without ${plural(of.unpriced, "instance")} of unknown price` : "";
  return `costs $${of.hour} an hour, $${of.idleHour} of it idle${unpriced}`;
}

// A bar a share: its part of what all shares used lately.
function drawShares(pool) {
  const list = element("ul", null, "shares");
  list.setAttribute("aria-label", `Shares of ${pool.class}`);
  for (const share of pool.shares) {
    const most = share.maxMachines ? ` of at most ${share.maxMachines}` : "";
    const text = `${share.share}: ${(share.usedPermille / 10).toFixed(1)} % of the use, weight ${share.weight}, holds ${share.machines}${most}, ${share.waiting} waiting`;
    const line = element("li", text);
    const bar = element("span", null, "used");
    bar.setAttribute("aria-hidden", "true");
    const part = element("i");
    part.style.width = `${share.usedPermille / 10}%`;
    bar.append(part);
    line.append(bar);
    list.append(line);
  }
  if (pool.sharesLeftOut > 0) list.append(element("li", `and ${plural(pool.sharesLeftOut, "share")} that used less`, "soft"));
  return list;
}

function drawRequest(row, request) {
  const name = cell(row, 0);
  name.replaceChildren(outward(brief(request.request), runAddress(request.request)));
  cell(row, 1, "Class").replaceChildren(inward(request.class, { class: request.class }));
  const phase = cell(row, 2);
  phase.className = `chip ${phaseOf(request)}`;
  put(phase, phaseOf(request));
  const count = `${request.held} of ${request.count}`;
  cell(row, 3, "Instances", "number").replaceChildren(request.held > 0 ? inward(count, { q: request.request }, "only its instances") : count);
  const time = cell(row, 4, null, "time");
  time.replaceChildren();
  if (request.readyAt) {
    const from = request.acceptedAt ? millis(request.acceptedAt) : millis(request.readyAt);
    const took = (millis(request.readyAt) - from) / 1000;
    const made = element("span", `ready after ${took < 60 ? took.toFixed(1) + "s" : long(took)}`);
    made.title = `ready at ${clock.format(millis(request.readyAt))} (${request.readyAt})`;
    time.append(made);
  } else if (waiting(request) && request.acceptedAt) {
    time.append("waits ", moment(request.acceptedAt, "for"));
    if (request.deadline) time.append(element("br"), "fails ", moment(request.deadline, "left"));
  }
  const lines = [request.message, ...request.waits.map((wait) => `waits: ${wait}`)].filter(Boolean).map((text) => [text]);
  if (request.expectedAt) lines.push([`expected to be ready at ${request.expectedAt}: ${request.expected}`]);
  else if (request.expected) lines.push([`expected: ${request.expected}`]);
  const list = element("ul", null, "why");
  list.append(...lines.map(([text]) => prose(text, "li")));
  cell(row, 5).replaceChildren(...(lines.length === 1 ? [prose(lines[0][0])] : lines.length > 1 ? [list] : []));
}

function axis(from, until) {
  const marks = [0, 0.25, 0.5, 0.75, 1].map((share) => {
    const mark = element("span", (until - from < 600000 ? clock : short).format(from + (until - from) * share));
    if (share < 1) mark.style.left = `${share * 100}%`;
    return mark;
  });
  byId("axis").replaceChildren(...marks);
}

const nameOf = (span) => (span.phase ? states[span.phase] : "not seen by this operator");

// The stretches of a machine as far as they are in the window; drawn for the rows in sight.
function drawTrack(row, machine) {
  const until = now();
  const from = until - Number(view.span) * 1000;
  const track = cell(row, 4);
  const share = (at) => ((at - from) / (until - from)) * 100;
  const drawn = [];
  machine.spans.forEach((span, index) => {
    const next = machine.spans[index + 1];
    const start = Math.max(millis(span.from), from);
    const end = Math.min(next ? millis(next.from) : until, until);
    if (end <= start || span.phase === "gone") return;
    const part = element("span", span.request && span.phase === "running" ? run(span.request) : nameOf(span), span.phase || "unseen");
    part.style.left = `${share(start)}%`;
    part.style.width = `${share(end) - share(start)}%`;
    part.title = `${nameOf(span)}${span.request ? ` for ${span.request}` : ""} since ${clock.format(millis(span.from))}`;
    drawn.push(part);
  });
  track.replaceChildren(...drawn);
}

function drawMachine(row, machine) {
  const name = cell(row, 0);
  let more = name.firstElementChild;
  if (!more) {
    more = element("details");
    more.append(element("summary", machine.id), element("p", null, "facts"), element("ol"));
    name.append(more);
  }
  const facts = more.children[1];
  facts.replaceChildren(inward(machine.class, { class: machine.class }), `, ${machine.instanceType}, ${machine.usageClass}, served ${machine.uses}`);
  if (machine.signal) facts.append(`, its agent reports ${machine.signal}`);
  const address = consoleAddress(machine);
  if (address) facts.append(", ", outward("EC2 console", address));
  const state = cell(row, 1);
  state.className = `chip ${machine.is}`;
  put(state, machine.reason ? `${states[machine.is]}: ${machine.reason}` : states[machine.is]);
  const holder = cell(row, 2, "Request");
  holder.replaceChildren(...(machine.request ? [inward(brief(machine.request), { q: machine.request }, "only this request and its instances")] : []));
  holder.parentElement.classList.toggle("none", !machine.request);
  const left = cell(row, 3, "Deadline", "time");
  left.replaceChildren(...(machine.until ? [moment(machine.until, "left")] : []));
  left.parentElement.classList.toggle("none", !machine.until);
  const lines = machine.spans.map((span) => `${nameOf(span)}${span.request ? ` for ${span.request}` : ""} since ${clock.format(millis(span.from))}`);
  const track = cell(row, 4, null, "timeline");
  track.className = "track";
  track.setAttribute("role", "img");
  track.setAttribute("aria-label", lines.join("; "));
  more.children[2].replaceChildren(...lines.map((text) => element("li", text)));
}

// What an event is about, as its record's key says it.
function about(subject) {
  const [kind, ...rest] = subject.split("#");
  if (kind === "pool") return inward(`class ${rest[0]}`, { class: rest[0] });
  if (kind === "request") return inward(`${rest[0]} run ${rest[1]}`, { q: `${rest[0]} run ${rest[1]}/` });
  if (kind !== "instance") return element("span", subject);
  const id = rest[0].replace(/^.*\//, "");
  return inward(id, { q: id });
}

function drawEvent(row, event) {
  cell(row, 0).replaceChildren(moment(event.at));
  const reason = cell(row, 1);
  reason.className = event.type === "Warning" ? "bad" : "";
  put(reason, event.type === "Warning" ? `Warning: ${event.reason}` : event.reason);
  cell(row, 2).replaceChildren(about(event.subject));
  cell(row, 3).replaceChildren(prose(event.actor === "operator" ? event.message : `${event.message} (${event.actor})`, "span"));
}
