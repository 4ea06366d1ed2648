// Renders a reply's Markdown while it streams. Deltas arrive as text in `.source`; this writes them on into `.rendered`, beside it,
// in the shapes that conversations/markdown.py uses, so that nothing jumps when the server's own rendering takes their place.
// Should it fail, the plain text in `.source` is what is shown.

import "./code.js";
import { typeset } from "./math.js";
import DOMPurify from "../vendor/dompurify/dist/purify.es.mjs";
import * as smd from "../vendor/streaming-markdown/smd.js";

const SCHEMES = /^(https?:|mailto:)/i;
const PACE_MS = 150; // what has come is shown within this time
const still = matchMedia("(prefers-reduced-motion: reduce)");
const mounted = new Map(); // turn -> its writer

function allowed(tag, attribute, value) {
  return DOMPurify.isValidAttribute(tag, attribute, value) && (attribute !== "href" || SCHEMES.test(value.trim()));
}

function push(data, element) {
  data.nodes[data.index].append(element);
  data.nodes[(data.index += 1)] = element;
}

// What scrolls sideways must be within reach of a keyboard.
function focusable(element, label) {
  element.tabIndex = 0;
  element.setAttribute("role", "group");
  element.setAttribute("aria-label", label);
  return element;
}

function codeBlock(data) {
  const block = document.createElement("div");
  block.className = "code";
  const head = document.createElement("div");
  head.className = "code-head";
  const copy = document.createElement("button");
  copy.type = "button";
  copy.className = "quiet";
  copy.dataset.copy = "";
  copy.textContent = "Copy";
  head.append(document.createElement("span"), copy);
  const pre = focusable(document.createElement("pre"), "Code");
  block.append(head, pre);
  data.nodes[data.index].append(block);
  data.nodes[(data.index += 1)] = pre.appendChild(document.createElement("code"));
}

function addToken(data, type) {
  switch (type) {
    case smd.CODE_BLOCK:
    case smd.CODE_FENCE:
      return codeBlock(data);
    case smd.IMAGE: // a link: a fetched image would tell its host who reads
      return push(data, document.createElement("a"));
    case smd.CHECKBOX: // text, as in the finished reply
      push(data, document.createElement("span"));
      data.nodes[data.index].textContent = "[ ]";
      return;
    case smd.RAW_URL: // text, as in the finished reply
      return push(data, document.createElement("span"));
    case smd.LINE_BREAK: {
      const { pending } = data.parser;
      if (!pending.startsWith("<br")) return smd.default_add_token(data, type);
      push(data, document.createElement("span")); // HTML is text, as in the finished reply
      data.nodes[data.index].textContent = `${pending}>`;
      return;
    }
    case smd.EQUATION_BLOCK:
    case smd.EQUATION_INLINE:
      return formula(data, type);
    case smd.TABLE: {
      const box = focusable(document.createElement("div"), "Table");
      box.className = "scroll-x";
      data.nodes[data.index].append(box);
      data.nodes[(data.index += 1)] = box.appendChild(document.createElement("table"));
      return;
    }
    default:
      smd.default_add_token(data, type);
  }
}

// Until it ends it is text with its delimiter: a lone dollar may be a price.
function formula(data, type) {
  const element = document.createElement("span");
  const dollar = data.parser.pending.startsWith("$");
  element.dataset.formula = type === smd.EQUATION_BLOCK ? "block" : dollar ? "$" : "inline";
  if (element.dataset.formula === "$") element.append("$");
  push(data, element);
}

const ENTITY = /&(?:#\d{1,7}|#x[\da-f]{1,6}|[a-z][\da-z]{1,31});/gi;
const decoder = document.createElement("textarea");

function decoded(entity) {
  decoder.innerHTML = entity;
  return decoder.value;
}

// What the parser leaves as it was written: &amp; and the marks that close a heading.
function finish(element) {
  if (element.localName === "code") return;
  element.normalize();
  for (const node of element.childNodes) {
    if (node.nodeType === Node.TEXT_NODE && node.data.includes("&")) node.data = node.data.replace(ENTITY, decoded);
  }
  const last = element.lastChild;
  if (/^h[1-6]$/.test(element.localName) && last?.nodeType === Node.TEXT_NODE) last.data = last.data.replace(/\s+#+\s*$/, "");
}

function endToken(data) {
  const element = data.nodes[data.index];
  smd.default_end_token(data);
  const { formula: kind } = element.dataset ?? {};
  if (!kind) return finish(element);
  delete element.dataset.formula;
  const tex = element.textContent.slice(kind === "$" ? 1 : 0);
  if (kind === "$" && (tex !== tex.trim() || !tex)) {
    element.append("$");
    return;
  }
  element.textContent = tex;
  element.className = kind === "block" ? "math display" : "math";
  typeset(element.parentElement);
}

function setAttribute(data, type, value) {
  const node = data.nodes[data.index];
  if (type === smd.LANG) {
    const label = node.closest(".code")?.querySelector(".code-head > span");
    if (label) label.textContent = value.trim().split(/\s+/)[0];
    return;
  }
  if (type === smd.CHECKED) {
    node.textContent = "[x]";
    return;
  }
  const tag = node.localName;
  const name = tag === "a" ? "href" : smd.attr_to_html_attr(type);
  if (tag === "span" || !allowed(tag, name, value)) return;
  node.setAttribute(name, value);
  if (tag === "a") {
    node.rel = "noopener noreferrer nofollow";
    node.target = "_blank";
  }
}

function parserFor(root) {
  const renderer = smd.default_renderer(root);
  const parser = smd.parser({ ...renderer, add_token: addToken, end_token: endToken, set_attr: setAttribute });
  renderer.data.parser = parser;
  return parser;
}

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

function mount(turn) {
  const source = turn.querySelector(".source");
  const rendered = turn.querySelector(".rendered");
  if (!source || !rendered || mounted.get(turn)?.source === source) return;
  const parser = parserFor(rendered);
  let failed = false;
  turn.classList.add("rendering");

  const write = (text) => {
    if (failed || !text) return;
    try {
      smd.parser_write(parser, text);
    } catch (error) {
      failed = true;
      rendered.replaceChildren();
      turn.classList.remove("rendering"); // `.source` shows itself again
      console.error("Markdown was not rendered", error);
    }
  };

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
  write(source.textContent);
  const pacer = new Pacer(write);
  mounted.set(turn, { source, pacer });
  new MutationObserver(() => {
    const text = merge();
    if (text) pacer.push(text);
  }).observe(source, { childList: true });
}

function mountAll() {
  for (const turn of mounted.keys()) if (!turn.isConnected) mounted.delete(turn);
  document.querySelectorAll('.turn[aria-busy="true"]').forEach(mount);
}

mountAll();
new MutationObserver(mountAll).observe(document.querySelector(".frame"), { childList: true, subtree: true });
document.addEventListener("visibilitychange", () => {
  if (document.hidden) mounted.forEach(({ pacer }) => pacer.flush());
});

// The finished reply takes the place of the one that streams when all of that is shown.
document.addEventListener("htmx:ws:before:message:incoming", ({ detail }) => {
  for (const [turn, { pacer }] of mounted) {
    const drained = pacer.drained();
    if (drained && detail.message.data.includes(`hx-target="#${turn.id}"`)) detail.waitUntil(drained);
  }
});
