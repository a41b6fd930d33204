// What is known, what of it is looked at, and how it is kept up to date.
const PERIOD = 2000;
const FEW = 10;

const data = {
  head: {}, mark: null,
  lists: { pools: new Map(), machines: new Map(), requests: new Map(), events: new Map() },
  names: { pools: "class", machines: "id", requests: "request", events: "id" },
  rows(list) { return [...this.lists[list].values()]; },
  // An answer is everything, or what changed since the answer with the mark that was sent.
  take(answer) {
    for (const [list, name] of Object.entries(this.names)) {
      if (!answer.gone) this.lists[list] = this.kept(list, name, answer[list]);
      else {
        for (const gone of answer.gone[list]) this.lists[list].delete(gone);
        for (const row of answer[list]) this.lists[list].set(row[name], row);
      }
    }
    this.head = answer;
    this.mark = answer.mark;
  },
  // Everything again: what is as it was stays the same object, so that it is not drawn again.
  kept(list, name, rows) {
    return new Map(rows.map((row) => {
      const before = this.lists[list].get(row[name]);
      return [row[name], before && JSON.stringify(before) === JSON.stringify(row) ? before : row];
    }));
  },
};

// What is looked at is in the address, so that it can be kept and sent.
const START = { q: "", class: "", span: "600", rsort: "", msort: "", phases: "", states: "" };
const view = { ...START };

function readAddress() {
  const there = new URLSearchParams(location.search);
  for (const name of Object.keys(START)) view[name] = there.get(name) ?? START[name];
  for (const name of ["q", "class", "span", "rsort", "msort"]) {
    if (byId(name).value !== view[name]) byId(name).value = view[name];
  }
  if (!byId("span").value) byId("span").value = view.span = START.span;
}

function change(filters, push) {
  Object.assign(view, filters);
  const there = new URLSearchParams(Object.entries(view).filter(([name, value]) => value !== START[name]));
  const address = there.size > 0 ? `?${there}` : location.pathname;
  if (push) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
  readAddress();
  draw();
}

const PHASES = ["Pending", "Fulfilling", "Failed", "Ready", "Releasing", "Released", "Refused"];
const ALWAYS = ["Failed", "Pending", "Fulfilling", "created", "claimed", "ending"];
const STATES = Object.keys(states);

// Which groups are open: those that a person chose, else all but the long ones in which nothing is wrong.
function open(of, name, counts) {
  const chosen = view[of] ? view[of].split(",") : [];
  if (chosen.includes(name)) return true;
  if (chosen.includes(`-${name}`)) return false;
  if (name === "Refused" && view.q === "") return false;
  return ALWAYS.includes(name) || (of === "states" && name !== "gone") || (counts.get(name) || 0) <= FEW || view.q !== "";
}

function chips(of, names, counts, label) {
  const list = byId(of);
  const text = JSON.stringify(names.map((name) => [counts.get(name), open(of, name, counts)]));
  if (list.dataset.text === text) return;
  list.dataset.text = text;
  const focus = document.activeElement?.dataset?.chip;
  list.replaceChildren(...names.filter((name) => counts.get(name) > 0).map((name) => {
    const shown = open(of, name, counts);
    const button = element("button", `${counts.get(name)} ${label(name)} ${shown ? "▾" : "▸"}`, name);
    button.type = "button";
    button.dataset.chip = `${of} ${name}`;
    button.setAttribute("aria-pressed", `${shown}`);
    button.title = shown ? "hide them" : "show them";
    button.addEventListener("click", () => {
      const others = view[of].split(",").filter((one) => one && one !== name && one !== `-${name}`);
      change({ [of]: [...others, shown ? `-${name}` : name].join(",") });
    });
    const item = element("li");
    item.append(button);
    return item;
  }));
  if (focus) list.querySelector(`[data-chip="${CSS.escape(focus)}"]`)?.focus();
}

function matches(words, ...texts) {
  const text = texts.join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
}

const by = (...keys) => (one, other) => {
  for (const key of keys) {
    const [a, b] = [key(one), key(other)];
    if (a < b) return -1;
    if (a > b) return 1;
  }
  return 0;
};
const late = (time) => (time ? -millis(time) : 0);
const REQUEST_SORTS = {
  "": [(r) => PHASES.indexOf(r.phase === "Fulfilling" ? "Pending" : phaseOf(r)), (r) => (waiting(r) ? -late(r.acceptedAt) : late(r.readyAt || r.acceptedAt)), (r) => r.request],
  new: [(r) => late(r.acceptedAt), (r) => r.request],
  class: [(r) => r.class, (r) => late(r.acceptedAt), (r) => r.request],
  repository: [(r) => r.request],
};
const MACHINE_SORTS = {
  "": [(m) => m.is === "ending" || m.is === "gone", (m) => m.class, (m) => millis(m.spans[0].from), (m) => m.id],
  state: [(m) => STATES.indexOf(m.is), (m) => late(m.since), (m) => m.id],
  new: [(m) => late(m.since), (m) => m.id],
  deadline: [(m) => (m.until ? millis(m.until) : Infinity), (m) => m.id],
};

const tables = {
  pools: new Rows(byId("pools"), (pool) => pool.class, drawPool),
  requests: new Rows(byId("request-rows"), (request) => request.request, drawRequest),
  machines: new Rows(byId("machines"), (machine) => machine.id, drawMachine, drawTrack),
  events: new Rows(byId("events"), (event) => event.id, drawEvent),
};

function note(id, shown, all, left, empty, also) {
  const more = (left > 0 ? `, ${left} more not sent` : "") + (also ? `; ${also}` : "");
  put(byId(id), all === 0 ? `${empty}${also ? ` (${also})` : ""}` : `${shown === all ? all : `${shown} of ${all}`}${more}`);
  byId(id).closest("section").querySelector("table").hidden = shown === 0;
}

function classes(pools, requests, machines) {
  const select = byId("class");
  const names = ["", ...new Set([...pools, ...requests, ...machines].map((one) => one.class))].sort();
  if (view.class && !names.includes(view.class)) names.push(view.class);
  const text = JSON.stringify(names);
  if (select.dataset.text === text) return;
  select.dataset.text = text;
  select.replaceChildren(...names.map((name) => {
    const option = element("option", name || "all");
    option.value = name;
    return option;
  }));
  select.value = view.class;
}

function draw() {
  if (!data.mark) return;
  const head = data.head;
  const every = data.rows("pools");
  // A class is a pool once it has a record; a misspelt class of a request is none.
  const pools = every.filter((pool) => pool.max !== null);
  const requests = data.rows("requests");
  const machines = data.rows("machines");
  put(byId("table"), head.table);
  put(byId("at"), clock.format(millis(head.at)));
  byId("at").dateTime = byId("at").title = head.at;
  put(byId("version"), head.version);
  put(byId("role"), head.leader ? "this operator leads" : "this operator stands by");
  byId("role").className = head.leader ? "good" : "soft";
  summary(head, requests, pools, machines);
  classes(pools, requests, machines);

  const words = view.q.toLowerCase().split(/\s+/).filter(Boolean);
  byId("clear").hidden = !Object.keys(START).some((name) => name !== "span" && view[name] !== START[name]);
  const ofClass = (one) => !view.class || one.class === view.class;
  const shownPools = pools.filter((pool) => ofClass(pool) && (pools.length <= FEW || matches(words, pool.class, pool.message) || view.class));
  tables.pools.show(shownPools);
  const without = every.filter((pool) => pool.max === null && pool.live > 0).map((pool) => `${pool.class} (${plural(pool.live, "instance")})`);
  const lost = without.length > 0 && `without a pool: ${without.join(", ")}`;
  note("pools-note", shownPools.length, pools.length, head.poolsLeftOut, "There is no pool yet. First step: write pools.yaml and run `runyard apply -f pools.yaml`.", lost);

  const found = requests.filter((r) => ofClass(r) && matches(words, r.request, r.class, phaseOf(r), r.message, ...r.waits));
  const phases = count(found, phaseOf);
  chips("phases", PHASES, phases, (phase) => phase.toLowerCase());
  const shownRequests = found.filter((r) => open("phases", phaseOf(r), phases)).sort(by(...(REQUEST_SORTS[view.rsort] || REQUEST_SORTS[""])));
  tables.requests.show(shownRequests);
  const ask = pools.length > 0 ? ` Ask for instances: \`runyard provision --run-id RUN --class ${pools[0].class} --count 1\`.` : "";
  note("requests-note", shownRequests.length, requests.length, head.requestsLeftOut, `No active requests.${ask}`);

  const window = now() - Number(view.span) * 1000;
  const some = machines.filter((m) => ofClass(m) && matches(words, m.id, m.class, m.request || "", m.instanceType, states[m.is], m.reason || ""))
    .filter((m) => m.is !== "gone" || millis(m.since) > window);
  const counts = count(some, (machine) => machine.is);
  chips("states", STATES, counts, (state) => states[state]);
  const shownMachines = some.filter((m) => open("states", m.is, counts)).sort(by(...(MACHINE_SORTS[view.msort] || MACHINE_SORTS[""])));
  axis(window, now());
  tables.machines.show(shownMachines);
  const since = machines.length > 0 && millis(head.remembersSince) > window && `changes are known since ${clock.format(millis(head.remembersSince))}`;
  note("machines-note", shownMachines.length, machines.length, head.machinesLeftOut, "There are no instances.", since);

  const inClass = new Set([`pool#${view.class}`, ...machines.filter(ofClass).map((m) => m.id), ...requests.filter(ofClass).map((r) => r.request.replace(/^(\S+) run ([^/]+)\/.*$/, "request#$1#$2"))]);
  const events = data.rows("events").filter((e) => matches(words.map((word) => word.replace(/\/$/, "")), e.subject.replaceAll("#", " run "), e.reason, e.message, e.actor))
    .filter((e) => !view.class || inClass.has(e.subject) || inClass.has(e.subject.replace(/^.*\//, ""))).sort(by((e) => late(e.at), (e) => e.id));
  tables.events.show(events);
  note("events-note", events.length, data.lists.events.size, 0, "No events in the last days.");
  for (const table of Object.values(tables)) table.tick();
}

async function look() {
  const since = data.mark ? `?since=${encodeURIComponent(data.mark)}` : "";
  const answer = await fetch(`/status.json${since}`, { cache: "no-store" });
  if (!answer.ok) throw new Error((await answer.text()).trim());
  const seen = await answer.json();
  data.take(seen);
  told = millis(seen.at);
  heard = performance.now();
  await breath();
  put(byId("said"), "");
  draw();
}

let held = false;

async function again() {
  if (!held && !document.hidden) {
    try {
      await look();
    } catch (error) {
      const why = error.message ? ` (${error.message})` : "";
      put(byId("said"), `The operator does not answer${why}${data.mark ? `; this is from ${byId("at").textContent}` : ""}.`);
      if (!data.mark) put(byId("verdict"), "No data loaded yet");
      document.title = "(no answer) Runyard";
    }
  }
  setTimeout(again, PERIOD);
}

byId("pause").addEventListener("click", () => {
  told = now();
  heard = performance.now();
  held = !held;
  byId("pause").setAttribute("aria-pressed", `${held}`);
});
for (const name of ["class", "span", "rsort", "msort"]) byId(name).addEventListener("change", () => change({ [name]: byId(name).value }));
byId("q").addEventListener("input", () => change({ q: byId("q").value }));
byId("clear").addEventListener("click", () => {
  change({ ...START, span: view.span }, true);
  byId("q").focus();
});
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-filters]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  change({ ...START, span: view.span, ...JSON.parse(link.dataset.filters) }, true);
});
addEventListener("popstate", () => { readAddress(); draw(); });
readAddress();
again();
