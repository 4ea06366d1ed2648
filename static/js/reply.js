// Renders a reply's Markdown while it streams. Deltas arrive as text in `.source`; this writes them on into `.rendered`, beside it,
// as conversations/markdown.py does, so that nothing jumps when the server's own rendering takes their place.
// Should it fail, the plain text in `.source` is what is shown.

import "./code.js";
import { MarkdownStream } from "./markdown_stream.js";
import { adopt } from "./math.js";

const PACE_MS = 150; // what has come is shown within this time
const PAINT_SHARE = 4; // painting takes at most this part of the time: one fourth
const still = matchMedia("(prefers-reduced-motion: reduce)");
const mounted = new Map(); // turn -> what it needs to be written

// Shows text evenly: what came at one moment is written over the next frames, all of it within PACE_MS.
class Pacer {
  constructor(write) {
    this.write = write;
    this.waiting = ""; // not written yet
    this.marks = []; // { left: characters up to here, due: when they must be written }
    this.frame = 0;
    this.last = 0;
    this.done = []; // called when nothing waits
  }

  push(text) {
    this.waiting += text;
    if (document.hidden || still.matches) {
      this.flush();
      return;
    }
    const now = performance.now();
    this.marks.push({ left: this.waiting.length, due: now + PACE_MS });
    if (this.frame) return;
    this.last = now;
    this.frame = requestAnimationFrame((at) => this.step(at));
  }

  step(at) {
    const spent = Math.max(1, at - this.last);
    this.last = at;
    const rates = this.marks.map(({ left, due }) => left * Math.min(1, spent / Math.max(spent, due - at)));
    this.show(Math.ceil(Math.max(...rates)));
    this.frame = this.waiting ? requestAnimationFrame((next) => this.step(next)) : 0;
  }

  show(wanted) {
    let length = Math.min(wanted, this.waiting.length);
    const code = this.waiting.charCodeAt(length - 1);
    if (code >= 0xd800 && code < 0xdc00 && length < this.waiting.length) length += 1; // both halves of a character
    const text = this.waiting.slice(0, length);
    this.waiting = this.waiting.slice(length);
    this.marks = this.marks.map(({ left, due }) => ({ left: left - length, due })).filter(({ left }) => left > 0);
    this.write(text);
    if (!this.waiting) this.done.splice(0).forEach((call) => call());
  }

  flush() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    if (this.waiting) this.show(this.waiting.length);
  }

  drained() {
    return this.waiting ? new Promise((resolve) => this.done.push(resolve)) : null;
  }
}

// Paints what was written; less often where that takes long, so that one huge block does not stop the page.
class Painter {
  constructor(root, failed) {
    this.stream = new MarkdownStream(root);
    this.failed = failed;
    this.timer = 0;
    this.next = 0; // not before
  }

  write(text) {
    this.stream?.push(text);
    if (this.timer) return;
    const wait = this.next - performance.now();
    if (wait <= 0) this.paint();
    else this.timer = setTimeout(() => this.paint(), wait);
  }

  paint() {
    this.draw((stream) => stream.paint());
  }

  end() {
    this.draw((stream) => stream.end());
  }

  draw(how) {
    clearTimeout(this.timer);
    this.timer = 0;
    if (!this.stream) return;
    const start = performance.now();
    try {
      how(this.stream);
    } catch (error) {
      this.stream = null;
      this.failed();
      console.error("Markdown was not rendered", error);
    }
    const end = performance.now();
    this.next = end + (end - start) * (PAINT_SHARE - 1);
  }
}

function mount(turn) {
  const source = turn.querySelector(".source");
  const rendered = turn.querySelector(".rendered");
  if (!source || !rendered || mounted.get(turn)?.source === source) return;
  turn.classList.add("rendering");
  const painter = new Painter(rendered, () => {
    rendered.replaceChildren();
    turn.classList.remove("rendering"); // `.source` shows itself again
  });

  // Takes the deltas that have come: the text is kept as one node, and the last cursor on the turn.
  const merge = () => {
    const deltas = [...source.querySelectorAll(":scope > [data-cursor]")];
    if (!deltas.length) return "";
    const text = deltas.map((delta) => delta.textContent).join("");
    turn.dataset.cursor = deltas[deltas.length - 1].dataset.cursor;
    deltas.forEach((delta) => delta.remove());
    if (source.lastChild) source.lastChild.appendData(text);
    else source.append(text);
    return text;
  };

  merge(); // what came before this script did
  painter.write(source.textContent);
  const pacer = new Pacer((text) => painter.write(text));
  mounted.set(turn, { source, rendered, pacer, painter });
  new MutationObserver(() => {
    const text = merge();
    if (text) pacer.push(text);
  }).observe(source, { childList: true });
}

function mountAll() {
  const gone = [...mounted].filter(([turn]) => !turn.isConnected);
  gone.forEach(([turn]) => mounted.delete(turn));
  document.querySelectorAll('.turn[aria-busy="true"]').forEach(mount);
  for (const [turn, { rendered }] of gone) replaced(rendered, document.getElementById(turn.id)?.querySelector(".prose"));
}

// What is shown anew before somebody's eyes stays as it was: formulas as they are, and code unfolded.
function replaced(rendered, prose) {
  if (!prose) return;
  adopt(rendered, prose);
  for (const button of prose.querySelectorAll("[data-unfold]")) {
    button.closest(".code").classList.remove("folded");
    button.remove();
  }
  if (selected?.rendered === rendered) select(prose, selected);
  selected = null;
}

// What a reader has selected in a reply that is shown anew is selected again, by its place in the text.
let selected = null; // { rendered, start, end, text }

function offsetIn(root, node, offset) {
  const range = document.createRange();
  range.setStart(root, 0);
  range.setEnd(node, offset);
  return range.toString().length;
}

function remember() {
  selected = null;
  const selection = document.getSelection();
  if (selection.isCollapsed || !selection.rangeCount) return;
  const range = selection.getRangeAt(0);
  for (const { rendered } of mounted.values()) {
    if (!rendered.contains(range.commonAncestorContainer)) continue;
    const start = offsetIn(rendered, range.startContainer, range.startOffset);
    selected = { rendered, start, end: start + range.toString().length, text: range.toString() };
  }
}

// The text node and the offset in it, that many characters into the text.
function placeIn(root, characters) {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  let left = characters;
  while (walker.nextNode()) {
    const { currentNode } = walker;
    if (left <= currentNode.length) return [currentNode, left];
    left -= currentNode.length;
  }
  return null;
}

function select(prose, { start, end, text }) {
  const [from, to] = [placeIn(prose, start), placeIn(prose, end)];
  if (!from || !to) return;
  const range = document.createRange();
  range.setStart(...from);
  range.setEnd(...to);
  if (range.toString() !== text) return; // the server has made something else of it
  document.getSelection().removeAllRanges();
  document.getSelection().addRange(range);
}

document.addEventListener("htmx:before:swap", remember);
mountAll();
new MutationObserver(mountAll).observe(document.querySelector(".frame"), { childList: true, subtree: true });
document.addEventListener("visibilitychange", () => {
  if (document.hidden) mounted.forEach(({ pacer }) => pacer.flush());
});

// The finished reply takes the place of the one that streams when all of that is shown.
document.addEventListener("htmx:ws:before:message:incoming", ({ detail }) => {
  for (const [turn, { pacer, painter }] of mounted) {
    if (!detail.message.data.includes(`hx-target="#${turn.id}"`)) continue;
    detail.waitUntil(Promise.resolve(pacer.drained()).then(() => painter.end()));
  }
});
