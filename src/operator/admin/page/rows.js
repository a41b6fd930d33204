// Tables that stay as they are where nothing changed: a row is drawn again only for another item, moments only where
// they can be seen, and no stretch of work is longer than a few milliseconds.
const SLICE = 6;
const breath = () => new Promise((resolve) => setTimeout(resolve));

class Rows {
  // `draw` fills a row from an item; `live` is called for rows in sight whenever time went on.
  constructor(body, key, draw, live) {
    Object.assign(this, { body, key, draw, live, items: [], turn: 0, there: new Map(), seen: new Set() });
    this.watch = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) this.seen.delete(entry.target);
        else if (entry.target.item) {
          this.seen.add(entry.target);
          this.freshen(entry.target);
        }
      }
    }, { rootMargin: "100px" });
  }

  freshen(row) {
    tick(row);
    if (this.live) this.live(row, row.item);
  }

  // Time went on, or something that all rows depend on changed.
  tick() {
    for (const row of this.seen) if (row.item) this.freshen(row);
  }

  async show(items) {
    const turn = ++this.turn;
    const names = new Set(items.map(this.key));
    let begun = performance.now();
    const spent = async () => {
      if (performance.now() - begun < SLICE) return false;
      await breath();
      begun = performance.now();
      return turn !== this.turn;
    };
    for (const [name, row] of this.there) {
      if (names.has(name)) continue;
      this.watch.unobserve(row);
      this.seen.delete(row);
      this.there.delete(name);
      row.remove();
      if (await spent()) return;
    }
    let before = null;
    for (const item of items) {
      const name = this.key(item);
      let row = this.there.get(name);
      if (!row) {
        row = element("tr");
        row.setAttribute("role", "row");
        this.there.set(name, row);
        this.watch.observe(row);
      }
      const place = before ? before.nextSibling : this.body.firstChild;
      if (row.item !== item || row !== place) {
        keepFocus(row, () => {
          if (row.item !== item) this.draw(row, item);
          if (row !== place) this.body.insertBefore(row, place);
        });
        if (row.item !== item && this.seen.has(row)) this.freshen(Object.assign(row, { item }));
        row.item = item;
      }
      before = row;
      if (await spent()) return;
    }
  }
}

// The content of a row's cell, which is made with the first look.
function cell(row, index, label, names) {
  if (row.children[index]) return row.children[index].lastElementChild;
  const made = element(index === 0 ? "th" : "td", null, names);
  made.setAttribute("role", index === 0 ? "rowheader" : "cell");
  if (index === 0) made.scope = "row";
  if (label) made.append(element("span", `${label}: `, "label"));
  made.append(element("div"));
  if (label) made.lastElementChild.style.display = "inline";
  row.append(made);
  return made.lastElementChild;
}
