// Is all well? One line, what is wrong, the totals, the last hours.
function count(items, of) {
  const counts = new Map();
  for (const item of items) counts.set(of(item), (counts.get(of(item)) || 0) + 1);
  return counts;
}

const LONG_WAIT = 300;

// What is not as it should be: what matters most first.
function problems(head, requests, pools) {
  const found = [];
  const say = (level, text, link) => found.push({ level, text, link });
  const queue = requests.filter(waiting);
  const failed = requests.filter((request) => request.phase === "Failed" && !slip(request));
  const slips = requests.filter(slip);
  if (head.leaderless) say("bad", `No operator leads, so nothing is launched: ${head.leaderless}.`);
  if (head.githubDown) say("bad", "GitHub does not answer: registrations and clean-ups are given more time.");
  if (head.unreadable > 0) say("bad", `${plural(head.unreadable, "record")} cannot be read: see runyard doctor.`);
  if (queue.length > 0) {
    const oldest = Math.min(...queue.map((request) => millis(request.acceptedAt || head.at)));
    const seconds = (millis(head.at) - oldest) / 1000;
    const more = head.requestsLeftOut > 0 ? "at least " : "";
    say(seconds > LONG_WAIT ? "bad" : "warn", `${more}${plural(queue.length, "request")} waiting, the oldest for ${long(seconds)}.`, ["#requests", "requests"]);
  }
  if (failed.length > 0) say("bad", `${plural(failed.length, "request")} failed in the last 30 minutes.`, ["#requests", "requests"]);
  if (slips.length > 0) say("warn", `${plural(slips.length, "request")} refused for what was asked, in the last 30 minutes.`, [{ phases: "Refused" }, "them"]);
  for (const pool of pools) {
    if (pool.heldBackSeconds !== null) say("bad", `Launches of ${pool.class} are held back after failures.`, [{ class: pool.class }, pool.class]);
    if (pool.paused) say("warn", `Class ${pool.class} is paused.`, [{ class: pool.class }, pool.class]);
    if (pool.max > 0 && pool.live >= pool.max && queue.some((request) => request.class === pool.class)) {
      say("warn", `Class ${pool.class} is at its max of ${pool.max}, and requests wait for it.`, [{ class: pool.class }, pool.class]);
    }
  }
  return found;
}

function summary(head, requests, pools, machines) {
  const found = problems(head, requests, pools);
  const queue = requests.filter(waiting).length;
  const failed = requests.filter((request) => request.phase === "Failed" && !slip(request)).length;
  const title = [queue && `${queue} waiting`, failed && `${failed} failed`].filter(Boolean).join(", ");
  const name = title ? `(${title}) Runyard` : "Runyard";
  if (document.title !== name) document.title = name;

  const bad = found.some((one) => one.level === "bad");
  const verdict = byId("verdict");
  verdict.className = bad ? "bad" : found.length > 0 ? "warn" : "good";
  put(verdict, bad ? "Something is wrong" : found.length > 0 ? "Working, with waits or limits" : pools.length === 0 ? "An empty yard" : "All is well: no request waits, none failed lately");
  const list = byId("problems");
  const text = JSON.stringify(found);
  if (list.dataset.text !== text) {
    list.dataset.text = text;
    keepFocus(list, () => list.replaceChildren(...found.map((one) => {
      const line = element("li", `${one.text} `, one.level);
      if (one.link && typeof one.link[0] === "string") {
        const link = element("a", `to the ${one.link[1]}`);
        link.href = one.link[0];
        line.append(link);
      } else if (one.link) {
        line.append(inward(one.link[0].class ? `to class ${one.link[1]}` : `show ${one.link[1]}`, one.link[0]));
      }
      return line;
    })));
  }

  const have = { running: 0, claimed: 0, created: 0, held: 0, idle: 0, live: 0, max: 0 };
  for (const pool of data.rows("pools")) {
    for (const state of ["running", "claimed", "created", "held"]) have[state] += pool.have[state];
    have.idle += pool.have.pooled + pool.have.cleaning;
    have.live += pool.live;
    have.max += pool.max || 0;
  }
  const ending = machines.filter((machine) => machine.is === "ending").length;
  const use = have.live > 0 ? `, ${Math.round((have.running / have.live) * 100)} % in use` : "";
  const parts = [`${have.running} running`, `${have.idle} idle`, `${have.created} starting`, have.claimed && `${have.claimed} claimed`, have.held && `${have.held} held`, ending && `${ending} terminating`].filter(Boolean);
  const ready = requests.filter((request) => request.phase === "Ready").length;
  put(byId("totals"), `${plural(have.live, "instance")} of at most ${have.max}: ${parts.join(", ")}${use}. ${plural(queue, "request")} waiting, ${ready} ready.`);
  trends(head.trend);
}

function line(values) {
  const most = Math.max(1, ...values.filter((value) => value !== null));
  let path = "";
  let on = false;
  values.forEach((value, index) => {
    if (value === null) { on = false; return; }
    path += `${on ? "L" : "M"}${(index / (values.length - 1)) * 100} ${(1 - value / most) * 28 + 1}`;
    if (!on && values[index + 1] === null) path += "h1";
    on = true;
  });
  return path;
}

function trends(trend) {
  const box = byId("trends");
  const text = JSON.stringify(trend);
  if (!trend || box.dataset.text === text) return;
  box.dataset.text = text;
  const hours = Math.round((trend.waiting.length * trend.stepSeconds) / 3600);
  const drawn = [["running", "Running"], ["idle", "Idle"], ["waiting", "Requests that waited"]].map(([name, label]) => {
    const values = trend[name];
    const known = values.filter((value) => value !== null);
    const figure = element("figure", null, `trend of-${name}`);
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", "0 0 100 30");
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("role", "img");
    const most = known.length > 0 ? Math.max(...known) : 0;
    const caption = `${label}: ${known.length > 0 ? known[known.length - 1] : 0} now, at most ${most} in ${hours} h`;
    svg.setAttribute("aria-label", `${caption}, in steps of ${trend.stepSeconds / 60} minutes`);
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", line(values));
    svg.append(path);
    figure.append(svg, element("figcaption", caption, "soft"));
    return figure;
  });
  box.replaceChildren(...drawn);
}
