// What tests/system/page/run asks of the page, from inside it.
({
  // Text that is hard to read against what is behind it (WCAG 2.2, 1.4.3: 4.5 to 1).
  faint() {
    const parse = (color) => color.match(/[\d.]+/g).map(Number);
    const light = (rgb) => {
      const [r, g, b] = rgb.map((part) => {
        const share = part / 255;
        return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
      });
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (node) => {
      for (let at = node; at; at = at.parentElement) {
        const [r, g, b, a = 1] = parse(getComputedStyle(at).backgroundColor);
        if (a === 1) return [r, g, b];
        if (a !== 0) throw new Error(`a background that shines through: ${at.outerHTML.slice(0, 80)}`);
      }
      throw new Error("nothing is behind");
    };
    const found = [];
    let looked = 0;
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const node = walker.currentNode.parentElement;
      const box = node.getBoundingClientRect();
      if (!walker.currentNode.textContent.trim() || !node.checkVisibility() || box.width === 0 || node.closest("script, option")) continue;
      const pair = [parse(getComputedStyle(node).color).slice(0, 3), behind(node)].map(light).sort((a, b) => b - a);
      const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
      looked += 1;
      if (ratio < 4.5) found.push(`${ratio.toFixed(2)}: ${node.tagName}.${node.className} ${walker.currentNode.textContent.slice(0, 40)}`);
    }
    return { looked, found: [...new Set(found)] };
  },
  // What reaches beyond the right edge although it can be seen.
  wide() {
    const beyond = [...document.querySelectorAll("body *")].filter((node) => {
      if (!node.checkVisibility() || node.closest(".skip, thead, .track, .bar, .hidden")) return false;
      const box = node.getBoundingClientRect();
      return box.width > 0 && box.right > innerWidth + 0.5;
    });
    const page = document.documentElement.scrollWidth;
    return [...(page > innerWidth ? [`the page: ${page} of ${innerWidth}`] : []), ...beyond.map((node) => node.outerHTML.slice(0, 100))];
  },
  // Where the keyboard is.
  focus() {
    const node = document.activeElement;
    if (!node || node === document.body) return null;
    const style = getComputedStyle(node);
    const box = node.getBoundingClientRect();
    return {
      name: node.id || `${node.tagName.toLowerCase()} ${node.textContent.trim().slice(0, 30)}`,
      ringed: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
      inside: box.left >= -1 && box.right <= innerWidth + 1 && box.bottom > 0 && box.top < innerHeight,
    };
  },
  // Everything that can be operated.
  controls() {
    const all = [...document.querySelectorAll("a[href], button, select, summary, input")].filter((node) => node.checkVisibility());
    return all.map((node) => node.id || `${node.tagName.toLowerCase()} ${node.textContent.trim().slice(0, 30)}`);
  },
})
