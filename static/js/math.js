// Typesets formulas. KaTeX, its style sheet and its fonts are loaded when the first formula is seen, and not before.

const KATEX = "../vendor/katex/dist/";
let library = null;
let tries = 0;

function loadSheet(address) {
  const sheet = document.createElement("link");
  sheet.rel = "stylesheet";
  sheet.href = address;
  return new Promise((resolve, reject) => {
    sheet.addEventListener("load", resolve);
    sheet.addEventListener("error", () => {
      sheet.remove();
      reject(new Error(`${address} was not loaded`));
    });
    document.head.append(sheet);
  });
}

// What could not be loaded is forgotten, and asked for by another name: a browser may remember that a module was not there.
function load() {
  library ??= (async () => {
    const address = (name) => new URL(`${KATEX}${name}${tries ? `?try=${tries}` : ""}`, import.meta.url).href;
    const parts = [import(address("katex.mjs")), loadSheet(address("katex.min.css"))];
    try {
      const [katex] = await Promise.all(parts);
      return katex.default;
    } catch (error) {
      library = null;
      tries += 1;
      throw error;
    }
  })();
  return library;
}

// The policy of the page forbids style attributes in HTML; the same set through the style object are allowed.
function put(element, html) {
  const template = document.createElement("template");
  template.innerHTML = html.replaceAll(' style="', ' data-style="');
  element.replaceChildren(document.importNode(template.content, true));
  for (const part of element.querySelectorAll("[data-style]")) {
    part.style.cssText = part.dataset.style;
    delete part.dataset.style;
  }
}

// What defines commands can grow without end, and what is very long or one of very many is slow: their source is shown.
const DEFINES = /\\(?:[gex]?def|let|futurelet|(?:re)?newcommand|providecommand|global|long)(?![a-zA-Z@])/;
const MAX_CHARS = 1_500;
const MAX_PER_REPLY = { count: 1_000, ms: 5_000 };
const SLICE_MS = 20; // then whatever else the page has to do comes first
const soon = window.requestIdleCallback ?? ((work) => setTimeout(work, 16)); // Safari has none
const spent = new WeakMap(); // reply -> { count, ms }
const waiting = [];
const unloaded = new Set(); // formulas that wait for what typesets them
const sources = new WeakMap(); // formula -> its TeX
let working = false;

// The TeX of a formula that is typeset, or soon will be.
export const sourceOf = (element) => sources.get(element);

// What has to be scrolled to be read can be scrolled with the keyboard too.
const sizes = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    if (target.scrollWidth > target.clientWidth + 1) target.tabIndex = 0;
    else target.removeAttribute("tabindex");
  }
});

function leave(element, why) {
  element.classList.add("unset");
  element.title = why;
}

function set(katex, element) {
  const source = element.textContent;
  const reply = element.closest(".turn") ?? document.body;
  const total = spent.get(reply) ?? { count: 0, ms: 0 };
  spent.set(reply, total);
  if (DEFINES.test(source)) return leave(element, "A formula that defines commands is shown as it was written.");
  if (source.length > MAX_CHARS) return leave(element, "This formula is too long to be typeset.");
  if (total.count >= MAX_PER_REPLY.count || total.ms >= MAX_PER_REPLY.ms) return leave(element, "Too many formulas to typeset.");
  const displayMode = element.localName === "div" || element.classList.contains("display");
  const start = performance.now();
  try {
    put(element, katex.renderToString(source, { displayMode, trust: false, maxExpand: 1_000, maxSize: 50 }));
    sizes.observe(element);
  } catch (error) {
    leave(element, error.message);
  }
  total.count += 1;
  total.ms += performance.now() - start;
}

async function work() {
  let katex;
  try {
    katex = await load();
  } catch (error) {
    console.warn("KaTeX was not loaded", error);
    for (const element of waiting.splice(0)) {
      leave(element, "This formula is shown as it was written until the site can be reached.");
      unloaded.add(element);
    }
    working = false;
    return;
  }
  const until = performance.now() + SLICE_MS;
  do {
    const element = waiting.shift();
    if (element.isConnected) set(katex, element);
  } while (waiting.length && performance.now() < until);
  working = waiting.length > 0;
  if (working) soon(work);
}

const TO_SET = ".math:not([data-set], .open)"; // `open`: its end has not come yet

function typeset(elements) {
  for (const element of elements) {
    element.dataset.set = "";
    sources.set(element, element.textContent);
    waiting.push(element);
  }
  if (waiting.length) begin();
}

function begin() {
  for (const element of unloaded) {
    element.classList.remove("unset");
    element.removeAttribute("title");
    if (element.isConnected) waiting.push(element);
  }
  unloaded.clear();
  if (working || !waiting.length) return;
  working = true;
  work(); // the first of them before the page is painted
}

// Takes over what is typeset already: a reply that ends is shown anew, with the formulas that it had.
export function adopt(from, to) {
  const ready = [...from.querySelectorAll(".math[data-set]")].filter((element) => !waiting.includes(element));
  for (const element of to.querySelectorAll(".math")) {
    const source = sources.get(element) ?? element.textContent;
    const same = ready.findIndex((other) => sources.get(other) === source && other.className.replace(" unset", "") === element.className);
    if (same < 0) continue;
    element.replaceWith(ready[same]);
    ready.splice(0, same + 1);
  }
}

typeset(document.querySelectorAll(TO_SET));
new MutationObserver((records) => {
  for (const { addedNodes } of records) {
    for (const node of addedNodes) {
      if (node.nodeType !== Node.ELEMENT_NODE) continue;
      if (node.matches(TO_SET)) typeset([node]);
      else if (node.querySelector(TO_SET)) typeset(node.querySelectorAll(TO_SET));
    }
  }
}).observe(document.body, { childList: true, subtree: true });
for (const name of ["chat:connected", "visibilitychange"]) document.addEventListener(name, begin);
window.addEventListener("online", begin);
