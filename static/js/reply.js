// Renders a reply's Markdown while it streams. Deltas arrive as text in `.source`; this writes them on into `.rendered`, beside it,
// in the shapes that conversations/markdown.py uses, so that nothing jumps when the server's own rendering takes their place.
// Should it fail, the plain text in `.source` is what is shown.

import DOMPurify from "../vendor/dompurify/dist/purify.es.mjs";
import * as smd from "../vendor/streaming-markdown/smd.js";

const SCHEMES = /^(https?:|mailto:)/i;
const mounted = new WeakSet();

function allowed(tag, attribute, value) {
  return DOMPurify.isValidAttribute(tag, attribute, value) && (attribute !== "href" || SCHEMES.test(value.trim()));
}

function push(data, element) {
  data.nodes[data.index].append(element);
  data.nodes[(data.index += 1)] = element;
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
  const pre = document.createElement("pre");
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
    case smd.EQUATION_BLOCK:
    case smd.EQUATION_INLINE:
      return push(data, document.createElement("span"));
    case smd.TABLE: {
      const box = document.createElement("div");
      box.className = "scroll-x";
      data.nodes[data.index].append(box);
      data.nodes[(data.index += 1)] = box.appendChild(document.createElement("table"));
      return;
    }
    default:
      smd.default_add_token(data, type);
  }
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

function rendererFor(root) {
  const renderer = smd.default_renderer(root);
  return { ...renderer, add_token: addToken, set_attr: setAttribute };
}

function mount(turn) {
  const source = turn.querySelector(".source");
  const rendered = turn.querySelector(".rendered");
  if (!source || !rendered || mounted.has(source)) return;
  mounted.add(source);
  const parser = smd.parser(rendererFor(rendered));
  let failed = false;

  const write = (text) => {
    if (failed || !text) return;
    try {
      smd.parser_write(parser, text);
    } catch (error) {
      failed = true;
      rendered.replaceChildren(); // `.source` shows itself again
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
  new MutationObserver(() => write(merge())).observe(source, { childList: true });
}

function mountAll() {
  document.querySelectorAll('.turn[aria-busy="true"]').forEach(mount);
}

mountAll();
new MutationObserver(mountAll).observe(document.querySelector(".frame"), { childList: true, subtree: true });

document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(button.closest(".code").querySelector("code").textContent);
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = "Copy"), 2_000);
});
