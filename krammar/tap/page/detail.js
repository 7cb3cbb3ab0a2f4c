// A message as a tree of fields beside its bytes. The field under the pointer is marked in both.

const NAME = 0, KIND = 1, BEGIN = 2, END = 3, VALUE = 4, CHILDREN = 5;

const isErrorCode = (node) => node[NAME].endsWith("error_code") && !/^(0( |$)|-)/.test(node[VALUE]);

class Detail {
  constructor() {
    this.tree = new VirtualList(byId("tree"), 21, (index) => this.drawNode(index));
    this.hex = new VirtualList(byId("bytes"), 19, (index) => this.drawBytes(index));
    this.width = 16;
    this.clear();
    const trees = byId("tree");
    const bytes = byId("bytes");
    trees.addEventListener("pointerover", (event) => {
      const node = event.target.closest(".node");
      if (node) this.mark(this.lines[Number(node.dataset.i)].node, "tree");
    });
    trees.addEventListener("click", (event) => {
      const node = event.target.closest(".node");
      if (!node) return;
      const line = this.lines[Number(node.dataset.i)];
      if (event.target.closest(".fold") || event.detail === 2) this.fold(line.node);
      else this.mark(line.node, "tree");
    });
    trees.addEventListener("keydown", (event) => this.keys(event));
    bytes.addEventListener("pointerover", (event) => {
      const cell = event.target.closest("[data-o]");
      if (cell) this.mark(this.at(Number(cell.dataset.o)), "bytes");
    });
    bytes.addEventListener("click", (event) => {
      const cell = event.target.closest("[data-o]");
      if (cell) this.reveal(this.at(Number(cell.dataset.o)));
    });
    new ResizeObserver(() => {
      const width = bytes.clientWidth < 560 ? 8 : 16;
      if (width !== this.width) {
        this.width = width;
        this.hex.update(Math.ceil(this.data.length / width));
      }
    }).observe(bytes);
  }

  clear() {
    this.roots = [];
    this.lines = [];
    this.data = new Uint8Array();
    this.open = new Set();
    this.parents = new Map();
    this.marked = null;
    this.end = 0;
    this.fault = -1;
    byId("path").textContent = "";
  }

  // `frame` is what details.py builds; null if the message does not exist.
  show(frame) {
    this.clear();
    const problem = byId("problem");
    problem.hidden = true;
    if (frame) {
      this.data = Uint8Array.from(atob(frame.data), (c) => c.charCodeAt(0));
      this.roots = frame.tree;
      this.end = frame.end;
      if (frame.error && frame.offset < this.data.length) this.fault = frame.offset;
      this.openSome();
      const words = [frame.error, frame.note && (frame.note.includes("by the tap") ? "Changed by the tap." : `Changed by the tap: ${frame.note}.`)];
      if (frame.size > this.data.length) {
        words.push(`The first ${count(this.data.length)} of ${count(frame.size)} bytes are shown.`);
      }
      if (frame.omitted) words.push("The message has more fields than are shown.");
      problem.textContent = words.filter(Boolean).join(" · ");
      problem.className = frame.error ? "" : "note";
      problem.hidden = !problem.textContent;
    }
    this.flatten();
    byId("tree").scrollTop = 0;
    byId("bytes").scrollTop = 0;
    this.tree.update(this.lines.length);
    this.hex.update(Math.ceil(this.data.length / this.width));
    const wrong = this.wrong();
    if (wrong) {
      this.reveal(wrong);
      this.tree.show(this.lineOf(wrong), "middle");
    }
    if (this.fault >= 0) this.hex.show(Math.floor(this.fault / this.width), "middle");
  }

  // The field at which decoding failed, or the first error code that is not 0.
  wrong() {
    const nodes = [...this.parents.keys()];
    if (this.fault < 0) return nodes.find(isErrorCode);
    return nodes.filter((node) => node[BEGIN] <= this.fault).at(-1);
  }

  // Open everything in small messages, and the upper levels of large ones.
  openSome() {
    let nodes = 0;
    const visit = (node, parent) => {
      nodes += 1;
      this.parents.set(node, parent);
      for (const child of node[CHILDREN]) visit(child, node);
    };
    for (const root of this.roots) visit(root, null);
    const deepest = nodes <= 400 ? 99 : 2;
    const open = (node, depth) => {
      if (depth < deepest && node[CHILDREN].length) this.open.add(node);
      for (const child of node[CHILDREN]) open(child, depth + 1);
    };
    for (const root of this.roots) open(root, 0);
  }

  flatten() {
    this.lines = [];
    const visit = (node, depth) => {
      this.lines.push({ node, depth });
      if (this.open.has(node)) for (const child of node[CHILDREN]) visit(child, depth + 1);
    };
    for (const root of this.roots) visit(root, 0);
  }

  fold(node) {
    if (!node[CHILDREN].length) return;
    if (!this.open.delete(node)) this.open.add(node);
    this.flatten();
    this.tree.update(this.lines.length);
  }

  // The innermost field that has the byte at an offset.
  at(offset) {
    let found = null;
    let level = this.roots;
    for (;;) {
      const next = level.find((node) => node[BEGIN] <= offset && offset < node[END]);
      if (!next) return found;
      found = next;
      level = next[CHILDREN];
    }
  }

  pathOf(node) {
    const names = [];
    for (let each = node; each && this.parents.get(each); each = this.parents.get(each)) names.unshift(each[NAME]);
    return names.reduce((path, name) => path + (path && !name.startsWith("[") ? "." : "") + name, "") || node[NAME];
  }

  mark(node, from) {
    if (node === this.marked) return;
    this.marked = node;
    const bytes = node ? node[END] - node[BEGIN] : 0;
    byId("path").textContent = node
      ? `${this.pathOf(node)}  ·  ${node[KIND]}${node[KIND] ? "  ·  " : ""}offset ${node[BEGIN]}, ${bytes} byte${bytes === 1 ? "" : "s"}`
      : "";
    if (node && from === "tree" && bytes) this.hex.show(Math.floor(node[BEGIN] / this.width));
    if (node && from === "bytes") {
      const index = this.lineOf(node);
      if (index >= 0) this.tree.show(index);
    }
    this.paint();
  }

  // The line of a node, or of the innermost open node around it.
  lineOf(node) {
    for (let each = node; each; each = this.parents.get(each)) {
      const index = this.lines.findIndex((line) => line.node === each);
      if (index >= 0) return index;
    }
    return -1;
  }

  reveal(node) {
    for (let each = node && this.parents.get(node); each; each = this.parents.get(each)) this.open.add(each);
    this.flatten();
    this.tree.update(this.lines.length);
    if (node) this.tree.show(this.lineOf(node), "near");
    this.marked = null;
    this.mark(node, "bytes");
  }

  paint() {
    const node = this.marked;
    const line = node ? this.lineOf(node) : -1;
    for (const [index, element] of this.tree.drawn) this.showMarked(element, index === line);
    if (line >= 0) byId("tree").setAttribute("aria-activedescendant", `node-${line}`);
    else byId("tree").removeAttribute("aria-activedescendant");
    for (const element of this.hex.drawn.values()) {
      for (const cell of element.querySelectorAll("[data-o]")) {
        const offset = Number(cell.dataset.o);
        cell.classList.toggle("marked", Boolean(node) && node[BEGIN] <= offset && offset < node[END]);
      }
    }
  }

  showMarked(element, marked) {
    element.classList.toggle("marked", marked);
    element.setAttribute("aria-selected", String(marked));
  }

  keys(event) {
    const index = this.marked ? this.lineOf(this.marked) : -1;
    const line = this.lines[index];
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const next = this.lines[index + (event.key === "ArrowDown" ? 1 : -1)];
      if (next) {
        this.mark(next.node, "tree");
        this.tree.show(this.lines.indexOf(next));
      }
    } else if (line && event.key === "ArrowRight" && !this.open.has(line.node)) this.fold(line.node);
    else if (line && event.key === "ArrowLeft" && this.open.has(line.node)) this.fold(line.node);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  drawNode(index) {
    const { node, depth } = this.lines[index];
    const element = el("div", "node");
    element.dataset.i = index;
    element.style.paddingLeft = `${8 + depth * 15}px`;
    const fold = node[CHILDREN].length ? (this.open.has(node) ? "▾" : "▸") : "";
    element.append(el("span", "fold", fold), el("span", "name", node[NAME]), el("span", "value", node[VALUE]));
    if (depth) element.append(el("span", "kind", node[KIND]));
    element.id = `node-${index}`;
    element.setAttribute("role", "treeitem");
    element.setAttribute("aria-level", depth + 1);
    if (node[CHILDREN].length) element.setAttribute("aria-expanded", String(this.open.has(node)));
    if (isErrorCode(node)) element.classList.add("code");
    this.showMarked(element, node === this.marked);
    return element;
  }

  drawBytes(index) {
    const element = el("div", "hex");
    const begin = index * this.width;
    element.append(el("span", "at", begin.toString(16).padStart(6, "0")));
    const text = el("span", "text");
    for (let offset = begin; offset < begin + this.width; offset += 1) {
      const inside = offset < this.data.length;
      const byte = this.data[offset];
      const half = offset % 8 === 0 && offset > begin ? " half" : "";
      const pair = el("span", `pair${half}`, inside ? byte.toString(16).padStart(2, "0") : "  ");
      element.append(pair);
      if (!inside) continue;
      const sign = el("span", "", byte > 31 && byte < 127 ? String.fromCharCode(byte) : "·");
      for (const cell of [pair, sign]) {
        cell.dataset.o = offset;
        if (offset === this.fault) cell.classList.add("fault");
        if (offset >= this.end) cell.classList.add("rest");
        if (this.marked && this.marked[BEGIN] <= offset && offset < this.marked[END]) cell.classList.add("marked");
      }
      text.append(sign);
    }
    element.append(text);
    return element;
  }
}
