"use strict";
// Elements, formats, and lists that draw only the rows that can be seen. Text reaches the document only as text nodes.

function el(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

const byId = (id) => document.getElementById(id);

function duration(us) {
  if (us === null || us === undefined) return "";
  if (us < 1000) return `${us} µs`;
  if (us < 10_000) return `${(us / 1000).toFixed(2)} ms`;
  if (us < 1_000_000) return `${(us / 1000).toFixed(us < 100_000 ? 1 : 0)} ms`;
  return `${(us / 1_000_000).toFixed(2)} s`;
}

function size(bytes) {
  if (bytes === null || bytes === undefined) return "";
  if (bytes < 1000) return `${bytes} B`;
  const units = ["kB", "MB", "GB", "TB"];
  let index = -1;
  let value = bytes;
  do {
    value /= 1000;
    index += 1;
  } while (value >= 999.5 && index < units.length - 1);
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${units[index]}`;
}

const count = (number) => number.toLocaleString("en-US");

function clock(us, digits = 3) {
  const date = new Date(us / 1000);
  const two = (number) => String(number).padStart(2, "0");
  const text = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  return digits ? `${text}.${String(Math.floor(us % 1_000_000)).padStart(6, "0").slice(0, digits)}` : text;
}

function quantile(sorted, share) {
  return sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] : null;
}

class VirtualList {
  // draw(index) returns the element of a row; every row is `height` pixels high.
  constructor(box, height, draw) {
    this.box = box;
    this.height = height;
    this.draw = draw;
    this.length = 0;
    this.drawn = new Map();
    this.inner = el("div", "list");
    box.append(this.inner);
    box.addEventListener("scroll", () => this.render(), { passive: true });
    new ResizeObserver(() => this.render()).observe(box);
  }

  // Draw all visible rows again, after their content has changed.
  update(length) {
    const atEnd = this.isAtEnd();
    this.length = length;
    this.inner.style.height = `${length * this.height}px`;
    this.inner.replaceChildren();
    this.drawn.clear();
    if (this.follow && atEnd) this.box.scrollTop = length * this.height;
    this.render();
  }

  isAtEnd() {
    return this.box.scrollTop + this.box.clientHeight >= this.length * this.height - 2 * this.height;
  }

  render() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / this.height) - 6);
    const last = Math.min(this.length, first + Math.ceil(this.box.clientHeight / this.height) + 13);
    for (const [index, element] of this.drawn) {
      if (index < first || index >= last) {
        element.remove();
        this.drawn.delete(index);
      }
    }
    for (let index = first; index < last; index += 1) {
      if (this.drawn.has(index)) continue;
      const element = this.draw(index);
      element.style.transform = `translateY(${index * this.height}px)`;
      this.inner.append(element);
      this.drawn.set(index, element);
    }
  }

  show(index, where = "near") {
    const top = index * this.height;
    const { scrollTop, clientHeight } = this.box;
    if (where === "near" && top >= scrollTop && top + this.height <= scrollTop + clientHeight) return;
    const before = top < scrollTop;
    this.box.scrollTop = where === "near" && before ? top - this.height : top - clientHeight + 2 * this.height;
    if (where === "middle") this.box.scrollTop = top - clientHeight / 2;
    this.render();
  }
}
